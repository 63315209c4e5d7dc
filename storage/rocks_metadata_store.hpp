// The durable metadata store: RocksDB, one column family per table, group commit.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "storage/metadata_store.hpp"
#include "storage/store_recovery.hpp"

namespace troupe::storage {

// One commit thread takes all that waits and writes it as one synced RocksDB batch, so that concurrent
// commits share the cost of fdatasync. One process at a time holds the directory.
//
// On a full disk every commit fails with IsDiskFull and reads go on; the first commit after space has
// returned opens the database anew and succeeds. Nothing acknowledged is lost by that.
class RocksMetadataStore final : public MetadataStore {
 public:
  struct Limits {
    std::size_t queued_batches = 8192;
    Bytes queued_bytes = MiB(64);
    std::size_t group_batches = 512;
    Bytes group_bytes = MiB(8);
    // Commits stop while less than this is free, since RocksDB needs room to write its memory out when it
    // resumes. 0: only when a write fails.
    Bytes disk_reserve = MiB(8);
  };

  // Makes the directory when it is absent. FailedPrecondition: locked by another process (its pid is named),
  // or of a format that this build does not know. PermissionDenied: not writable. DataLoss: damaged; nothing
  // is dropped silently.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<RocksMetadataStore>> Open(const std::string& directory,
                                                                                const Limits& limits);
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<RocksMetadataStore>> Open(
      const std::string& directory) {
    return Open(directory, Limits());
  }
  // Commits what is queued, then closes.
  ~RocksMetadataStore() override;
  RocksMetadataStore(const RocksMetadataStore&) = delete;
  RocksMetadataStore& operator=(const RocksMetadataStore&) = delete;

  void Commit(Batch batch, CommitDone done) override;
  [[nodiscard]] absl::StatusOr<std::string> Get(Table table, std::string_view key) const override;
  [[nodiscard]] absl::Status Scan(Table table, std::string_view prefix,
                                  const ScanCallback& callback) const override;

  // What Open found and did.
  [[nodiscard]] const RecoveryReport& recovery() const;
  // A copy of all that is committed, as a store of its own in `directory`, which is made. Blocks; commits go
  // on meanwhile. Any thread but the commit thread.
  [[nodiscard]] absl::Status Checkpoint(const std::string& directory);

 private:
  class Impl;
  explicit RocksMetadataStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::storage
