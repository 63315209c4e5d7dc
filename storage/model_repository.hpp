// The seam to objects named by the SHA-256 of their bytes: published ONNX files, canonical models, weights,
// blobs. Objects never change. The caller knows which objects are still referred to, and has the others removed
// (Collect).
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"

namespace troupe::storage {

// The bytes of one object, readable for as long as `owner` lives, also after the object was removed.
struct ObjectBytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

struct ObjectInfo {
  std::string digest;
  Bytes size;
};

// InvalidArgument unless `digest` is one: it becomes part of a path.
[[nodiscard]] absl::Status CheckDigest(const std::string& digest);

// The beginning of an object whose other bytes are still to come.
struct PartInfo {
  std::string name;
  Bytes size;
  Duration idle;  // since the last byte came
};

// InvalidArgument unless it consists of at most 128 lower-case letters, digits and '-': it becomes part of a path.
[[nodiscard]] absl::Status CheckPartName(const std::string& name);

// What was appended to an object that is being written, for other threads, also after it was committed or given up.
class AppendedBytes {
 public:
  virtual ~AppendedBytes() = default;
  // OutOfRange: fewer bytes were appended.
  [[nodiscard]] virtual absl::StatusOr<std::string> Read(Bytes offset, Bytes length) const = 0;
};

// One object being written, by one thread. Destroyed without a Commit that succeeded, it leaves nothing
// behind, unless it continues a part.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;
  [[nodiscard]] virtual absl::Status Append(std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual Bytes size() const = 0;
  [[nodiscard]] virtual absl::StatusOr<std::shared_ptr<const AppendedBytes>> Appended() = 0;
  // Makes the object durable and visible under its digest, which is returned. InvalidArgument when `expected`
  // is not empty and the bytes have another digest: nothing is kept, nor is the part. Called once, last.
  [[nodiscard]] virtual absl::StatusOr<std::string> Commit(const std::string& expected) = 0;
};

// Threads: any. All members may block on the disk, so actors call them from a thread of their own. Errors:
// InvalidArgument for an invalid digest, NotFound, a full disk (IsDiskFull), Unavailable for a failing disk.
class ModelRepository {
 public:
  virtual ~ModelRepository() = default;

  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<ObjectWriter>> Create() = 0;
  // A writer that goes on behind the bytes of this part, of which it reads all; a part without bytes when there is none.
  // What it has appended outlasts it, and the process, until a Commit or RemovePart. After an error of Append the part has
  // some of those bytes. One writer at a time for each part.
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<ObjectWriter>> Continue(const std::string& part) = 0;
  [[nodiscard]] virtual std::vector<PartInfo> Parts() const = 0;  // by name
  // Fine when there is none.
  [[nodiscard]] virtual absl::Status RemovePart(const std::string& part) = 0;
  // The digest is verified once per process and object. DataLoss when the bytes differ from it: the object is
  // moved to the quarantine, and from then on is NotFound until it is put again.
  [[nodiscard]] virtual absl::StatusOr<ObjectBytes> Open(const std::string& digest) = 0;
  [[nodiscard]] virtual bool Has(const std::string& digest) const = 0;
  [[nodiscard]] virtual absl::Status Remove(const std::string& digest) = 0;
  // Removes the objects that `kept` does not name and that this process neither put, nor opened, nor found with
  // Has within `unused_for`: an object may be about to be referred to. Answers what was removed. An object that
  // the process has not used at all counts as used when the repository was opened.
  [[nodiscard]] virtual absl::StatusOr<std::vector<ObjectInfo>> Collect(const std::set<std::string>& kept,
                                                                        Duration unused_for) = 0;
  [[nodiscard]] virtual std::vector<ObjectInfo> List() const = 0;  // by digest
  [[nodiscard]] virtual Bytes UsedBytes() const = 0;

  // Makes a file that no process writes any more the object, without a copy where it lies on the repository's file system and
  // has one name. Its path names nothing afterwards, also when its bytes have another digest (InvalidArgument).
  [[nodiscard]] virtual absl::StatusOr<std::string> Take(const std::string& path,
                                                         const std::string& expected);

  // The object as a file at `path`, which names nothing yet and is only read from: without a copy where it lies on the
  // repository's file system.
  [[nodiscard]] virtual absl::Status Lend(const std::string& digest, const std::string& path);

  // Create, Append, Commit in one. `expected` may be empty.
  [[nodiscard]] absl::StatusOr<std::string> Put(std::span<const std::byte> bytes,
                                                const std::string& expected = "");
  // The same from a file of any size, in chunks.
  [[nodiscard]] absl::StatusOr<std::string> PutFile(const std::string& path,
                                                    const std::string& expected = "");
};

}  // namespace troupe::storage
