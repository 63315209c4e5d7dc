// KEPT UPLOADS: files that clients send in parts, each named by its client and the SHA-256 of the whole. What has come
// lies on the disk, so that an upload goes on after a broken connection, and after a restart of either side.
//
//   absent -> at byte 0 -> ... -> an object (the last part came)
//                    \-> absent (dropped, idle for too long, not the bytes of its digest, the stalest of too many)
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "proto/admin.pb.h"
#include "storage/model_repository.hpp"

namespace troupe::actors {

// Threads: any. Blocks on the disk.
class KeptUploads {
 public:
  // Of uploads that are not whole.
  struct Limits {
    std::size_t of_client = 64;
    Bytes bytes_of_client = GiB(64);  // one file has at most as many
    std::size_t all = 1024;           // for one more the stalest makes room
    Duration idle = std::chrono::hours(24);
    std::size_t open = 32;  // files that stay open between two parts
  };
  // `objects` outlives it.
  KeptUploads(storage::ModelRepository& objects, Limits limits);

  // Answers with what is there afterwards, and with a code: NOT_FOUND when nothing of it has come, OUT_OF_RANGE when the
  // part does not begin where the upload is, ABORTED while another part of it is being written, DATA_LOSS when the last
  // part has come and the bytes are not those of the digest, RESOURCE_EXHAUSTED beyond the limits of the client.
  [[nodiscard]] proto::UploadReply Handle(const proto::UploadChunk& chunk);
  // Drops what was idle for too long.
  void Expire();

 private:
  struct Upload {
    std::string owner;
    bool busy = false;    // a part is being written, by one thread
    bool doomed = false;  // dropped by that thread when it is done
    bool gone = false;    // its file: a commit took or refused it
    Time used{};
    Bytes size;  // on the disk
    std::unique_ptr<storage::ObjectWriter>
        writer;  // of the thread that made it busy; null: to be opened anew
  };
  using Uploads = std::map<std::string, Upload>;

  proto::UploadReply Ask(const std::string& name, const std::string& digest);
  proto::UploadReply Append(const std::string& name, const proto::UploadChunk& chunk);
  void Drop(const std::string& name);
  // Makes the upload busy, or says in the reply why not.
  absl::Status Begin(const std::string& name, const proto::UploadChunk& chunk, proto::UploadReply& reply);
  [[nodiscard]] absl::Status CheckRoom(const std::string& name, const proto::UploadChunk& chunk) const;
  absl::Status Write(const std::string& name, const proto::UploadChunk& chunk, Upload& upload);
  void MakeRoom();
  void CloseStalest();
  void Erase(Uploads::iterator upload);

  storage::ModelRepository& objects_;
  const Limits limits_;
  std::mutex mutex_;
  Uploads uploads_;  // by name; guarded by mutex_
};

}  // namespace troupe::actors
