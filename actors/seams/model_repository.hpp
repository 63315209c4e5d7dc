// MODEL REPOSITORY: what the manager and the caches ask of models, asynchronously. Production: storage/ on a
// pool of worker threads, imports and packing in a child process (disk_model_repository); tests and the
// simulator: a table (fake_model_repository). Callbacks run on any thread, exactly once; wrap them with
// Continuations.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/admin.pb.h"
#include "proto/cluster.pb.h"
#include "proto/function.pb.h"
#include "proto/stage_wish.hpp"
#include "proto/worker.pb.h"

namespace troupe::actors {

// An ONNX file, in what its weights may be packed (proto::PackedIn), and which of its stages is meant, should it be divided: each
// of these is one canonical model.
struct ModelFile {
  std::string onnx_digest;
  proto::Precision precision = proto::PRECISION_FP32;
  proto::StageWish stages{};
  auto operator<=>(const ModelFile&) const = default;
};

class ModelRepository {
 public:
  template <class T>
  using Done = std::function<void(absl::StatusOr<T>)>;
  virtual ~ModelRepository() = default;

  // One piece of an object that is being received, at `offset`, in order. With `last`, the whole is checked
  // against `digest`, synced, and answers its size; a mismatch is DATA_LOSS and leaves nothing behind. Offset
  // 0 begins `upload` anew, and nothing else does after an error. INVALID_ARGUMENT: it is at another byte;
  // ABORTED: the part before is being written still. Two uploads of one object are both kept: as one.
  virtual void Receive(const std::string& upload, std::uint64_t offset, std::string data, bool last,
                       const std::string& digest, Done<std::uint64_t> done) = 0;
  // What has come of an upload that does not go on is removed.
  virtual void Abandon(const std::string& upload) = 0;
  // A client's file, part by part, kept over restarts (KeptUploads). A refusal is a reply with its code and with what is
  // there; a status says that the repository could not even look.
  virtual void Upload(proto::UploadChunk chunk, Done<proto::UploadReply> done) = 0;
  // Imports a received ONNX file in a child process, when it is this client's turn. Answers a record with
  // model and weights digests, sizes, inputs and outputs; the canonical objects are stored and synced.
  // RESOURCE_EXHAUSTED: the client, or all clients, have too many files that wait.
  virtual void Import(const ModelFile& file, const std::string& client, Done<proto::FunctionRecord> done) = 0;
  // The progress of the imports of this file that wait or run, the one with the most progress first; of all files
  // when `onnx_digest` is empty. Any thread.
  [[nodiscard]] virtual std::vector<proto::ImportStatus> Imports(const std::string& onnx_digest) const = 0;
  // Keeps the bytes behind `ref` as an object; answers its digest once it is synced.
  virtual void Keep(const proto::TensorRef& ref, Done<std::string> done) = 0;
  // Part of a stored object as something that can be sent: by TensorChannel. `release` frees it.
  virtual void Read(const proto::FetchObject& part, Done<proto::FetchReply> done) = 0;
  // The same of an object of `total` bytes that is being received as `upload`. NOT_FOUND: the range has not come.
  virtual void ReadReceived(const std::string& upload, std::uint64_t total, const proto::FetchObject& part,
                            Done<proto::FetchReply> done) = 0;
  virtual void Release(std::uint64_t release) = 0;
  // The size of a stored object and the digest of a range of it, which is cut at 8 MiB and at the object's end.
  virtual void Digest(const proto::DigestRange& range, Done<proto::RangeDigest> done) = 0;
  // The bytes behind a fetched part (inline, arena or another host). DATA_LOSS unless their SHA-256 is `sha256`; empty:
  // they are not compared. Several are loaded at the same time.
  virtual void Load(const proto::TensorRef& ref, const std::string& sha256, Duration timeout,
                    Done<std::string> done) = 0;
  [[nodiscard]] virtual bool Has(const std::string& digest) const = 0;
  // Removes the objects that `kept` does not name and that were not used within `unused_for`
  // (storage/model_repository.hpp), and uploads that were idle for too long; answers how many bytes the objects had.
  virtual void Collect(std::set<std::string> kept, Duration unused_for, Done<Bytes> done) = 0;
  // The objects that have to be here before Adopt: the packed model for this node's devices, or the canonical
  // one.
  [[nodiscard]] virtual std::vector<std::string> ObjectsOf(const proto::FunctionRecord& function) const = 0;
  // Places a stored model in the host region, in the part of this isolation key.
  virtual void Adopt(const proto::FunctionRecord& function, const std::string& key,
                     Done<proto::HostCopy> done) = 0;
  // Frees the host copy once nothing reads it.
  virtual void Disown(const std::string& model_digest, const std::string& key) = 0;
};

}  // namespace troupe::actors
