// UPLOAD TABLE: files that arrive part by part, each with its name, and become objects with their last part.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "storage/model_repository.hpp"

namespace troupe::actors {

// absent -> at byte 0 -> ... -> absent (the last part came, a part failed, or it was the stalest of too many).
// Threads: any; those of one upload one after the other.
class UploadTable {
 public:
  // `objects` outlives it. `most`: at the same time.
  UploadTable(storage::ModelRepository& objects, std::size_t most) : objects_(objects), most_(most) {}

  // The bytes that have come. Aborted while another part of it is being written; InvalidArgument when it is not at
  // `offset`; DataLoss when the last part has come and the bytes are not those of `digest`.
  absl::StatusOr<std::uint64_t> Append(const std::string& name, std::uint64_t offset, const std::string& data,
                                       bool last, const std::string& digest);
  // It does not go on: its file is removed, once a part that is being written is.
  void Abandon(const std::string& name);
  // Bytes that have come of an upload that goes on. NotFound: it does not, or they have not all come.
  absl::StatusOr<std::string> Read(const std::string& name, std::uint64_t offset, std::uint64_t length);

 private:
  struct Upload {
    // Of the caller that made it busy.
    std::unique_ptr<storage::ObjectWriter> writer;
    std::uint64_t received = 0;
    // Guarded by mutex_.
    std::shared_ptr<const storage::AppendedBytes> appended;  // null before the first part was written
    std::uint64_t readable = 0;                              // its bytes
    bool busy = false;                                       // a part is being written, by one thread
    std::uint64_t used = 0;  // order of the last use: the stalest goes when there are too many
  };
  absl::StatusOr<std::shared_ptr<Upload>> BeginPart(const std::string& name, std::uint64_t offset);
  void EndPart(const std::string& name, const std::shared_ptr<Upload>& upload, bool over);
  absl::StatusOr<std::uint64_t> Write(const std::string& name, Upload& upload, const std::string& data,
                                      bool last, const std::string& digest);

  storage::ModelRepository& objects_;
  const std::size_t most_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Upload>> uploads_;  // guarded by mutex_
  std::uint64_t clock_ = 0;                                 // guarded by mutex_
};

}  // namespace troupe::actors
