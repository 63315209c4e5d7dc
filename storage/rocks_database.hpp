// One opened RocksDB with Troupe's tables and settings, and its errors in our words.
#pragma once

#include <rocksdb/db.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/metadata_store.hpp"

namespace troupe::storage {

// Immutable once opened; closed by the destructor. Threads: any, as RocksDB's own.
class RocksDatabase {
 public:
  enum class Mode {
    kCreate,    // made when absent
    kExisting,  // its absence is a loss
    kReadOnly,  // writes nothing: for a disk that is full
  };
  [[nodiscard]] static absl::StatusOr<std::shared_ptr<const RocksDatabase>> Open(const std::string& directory,
                                                                                 Mode mode);
  ~RocksDatabase();
  RocksDatabase(const RocksDatabase&) = delete;
  RocksDatabase& operator=(const RocksDatabase&) = delete;

  // As MetadataStore.
  [[nodiscard]] absl::StatusOr<std::string> Get(Table table, std::string_view key) const;
  [[nodiscard]] absl::Status Scan(Table table, std::string_view prefix,
                                  const MetadataStore::ScanCallback& callback) const;
  // Appends the batch to `out`, framed.
  [[nodiscard]] absl::Status Add(const Batch& batch, rocksdb::WriteBatch& out) const;
  // Returns after fdatasync.
  [[nodiscard]] absl::Status Write(rocksdb::WriteBatch& batch) const;

  // The number of the newest change. Every key that is put or deleted takes one.
  [[nodiscard]] std::uint64_t sequence() const { return db_->GetLatestSequenceNumber(); }
  // The oldest log that an opening reads; older ones only wait to be removed.
  [[nodiscard]] std::uint64_t FirstLog() const;
  // Reads every block of every file, and compares their checksums.
  [[nodiscard]] absl::Status VerifyFiles() const;
  // A copy of the database as it is now, in a directory that is not there yet. Files that never change are
  // hard links where the file system allows it. Commits go on meanwhile.
  [[nodiscard]] absl::Status Checkpoint(const std::string& directory) const;

 private:
  explicit RocksDatabase(std::string directory) : directory_(std::move(directory)) {}
  rocksdb::ColumnFamilyHandle* Handle(Table table) const { return tables_[static_cast<std::size_t>(table)]; }

  const std::string directory_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
  std::array<rocksdb::ColumnFamilyHandle*, 16> tables_{};  // by Table's number
};

}  // namespace troupe::storage
