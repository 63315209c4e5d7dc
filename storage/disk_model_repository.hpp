// The model repository on disk: objects/ab/<digest>, written beside and renamed, so that an object is there
// as a whole or not at all (docs/storage-format.md).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "storage/directory_lock.hpp"
#include "storage/mapped_file.hpp"
#include "storage/model_repository.hpp"

namespace troupe::storage {

// Lifecycle: opened at start (leftovers of a crash are removed, objects are listed, none is read), holds the
// directory's lock until destroyed. Writers and ObjectBytes may outlive it. Threads: any; verification of
// different objects runs in parallel.
//   object: absent -> written under tmp/ -> durable under objects/ -> verified at first Open -> removed
//                                                                    \-> quarantine/ when damaged
// A file that was written to or replaced since, by whomever, is verified again before it is served.
class DiskModelRepository final : public ModelRepository {
 public:
  // FailedPrecondition: locked by another process (its pid is named), or of a format that this build does not
  // know.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<DiskModelRepository>> At(const std::string& directory);

  [[nodiscard]] absl::StatusOr<std::unique_ptr<ObjectWriter>> Create() override;
  [[nodiscard]] absl::StatusOr<std::unique_ptr<ObjectWriter>> Continue(const std::string& part) override;
  [[nodiscard]] std::vector<PartInfo> Parts() const override;
  [[nodiscard]] absl::Status RemovePart(const std::string& part) override;
  [[nodiscard]] absl::Status Lend(const std::string& digest, const std::string& path) override;
  [[nodiscard]] absl::StatusOr<std::string> Take(const std::string& path,
                                                 const std::string& expected) override;
  [[nodiscard]] absl::StatusOr<ObjectBytes> Open(const std::string& digest) override;
  [[nodiscard]] bool Has(const std::string& digest) const override;
  [[nodiscard]] absl::Status Remove(const std::string& digest) override;
  [[nodiscard]] absl::StatusOr<std::vector<ObjectInfo>> Collect(const std::set<std::string>& kept,
                                                                Duration unused_for) override;
  [[nodiscard]] std::vector<ObjectInfo> List() const override;
  [[nodiscard]] Bytes UsedBytes() const override;

 private:
  class Writer;
  struct Object {
    Bytes size;
    Time used;  // when it was put, opened or asked for last
    bool verified = false;
    FileIdentity identity;             // of the file that was verified
    std::weak_ptr<const void> mapped;  // shared by all readers that have it open
  };
  // What writers share with the repository, which they may outlive.
  struct State {
    std::string directory;
    std::mutex mutex;
    std::map<std::string, Object> objects;  // by digest; guarded by mutex
    std::uint64_t next_temporary = 0;       // guarded by mutex
  };

  DiskModelRepository(DirectoryLock lock, std::shared_ptr<State> state)
      : lock_(std::move(lock)), state_(std::move(state)) {}
  // The path of a new file under tmp/, which no other writer has.
  [[nodiscard]] std::string NewTemporary();
  // True when the verified file is the file that was mapped; else it has to be verified (again).
  bool StillVerified(const std::string& digest, const FileIdentity& mapped);
  absl::Status Quarantine(const std::string& digest, const std::string& found);

  const DirectoryLock lock_;
  const std::shared_ptr<State> state_;
};

}  // namespace troupe::storage
