#include "storage/rocks_database.hpp"

#include <rocksdb/listener.h>
#include <rocksdb/utilities/checkpoint.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "storage/disk_status.hpp"
#include "storage/durable_file.hpp"
#include "storage/record_frame.hpp"
#include "storage/rocks_logger.hpp"
#include "storage/zeroed_logs.hpp"

namespace troupe::storage {
namespace {

rocksdb::Slice ToSlice(std::string_view text) {
  return {text.data(), text.size()};
}
std::string_view ToView(const rocksdb::Slice& slice) {
  return {slice.data(), slice.size()};
}

// RocksDB would look every five seconds whether there is space again. Its resumption meets assertions of its
// own when a log write has failed (7.8.3 as Debian builds it), so the store opens the database anew instead.
class NoRecoveryOfItsOwn final : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status, bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

rocksdb::DBOptions DatabaseOptions(const std::string& directory, bool create) {
  rocksdb::DBOptions options;
  options.env = ZeroedLogs();
  options.create_if_missing = create;
  options.create_missing_column_families = true;
  options.paranoid_checks = true;
  // Replay ends at the first record that cannot be read. Whether anything acknowledged stood there was
  // decided before (store_recovery.hpp): RocksDB's other modes either refuse a torn write whose length is
  // right, or take a wrong length for the end of the log.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  // Closed logs are named in the manifest: when one is missing or cut short the database refuses to open.
  options.track_and_verify_wals_in_manifest = true;
  options.listeners = {std::make_shared<NoRecoveryOfItsOwn>()};
  options.max_bgerror_resume_count = 0;
  options.max_total_wal_size = MiB(64).count();
  options.max_background_jobs = 2;
  options.info_log = MakeRocksLogger(directory);
  options.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  return options;
}

rocksdb::ColumnFamilyOptions TableOptions() {
  rocksdb::ColumnFamilyOptions options;
  options.write_buffer_size = MiB(8).count();
  options.compression = rocksdb::kNoCompression;
  return options;
}

absl::Status FromRocks(const rocksdb::Status& status, const std::string& directory,
                       const std::string& doing) {
  if (status.ok()) return absl::OkStatus();
  if (status.IsNoSpace()) return DiskFullError(directory, doing);
  const std::string message = absl::StrCat("cannot ", doing, " ", directory, ": ", status.ToString());
  if (status.IsCorruption() || status.IsPathNotFound()) {
    return absl::DataLossError(
        absl::StrCat(message, ": restore it from a backup (troupe store restore); nothing was changed"));
  }
  if (status.IsInvalidArgument()) {  // no database there, or a table that this build does not know
    return absl::DataLossError(absl::StrCat(
        message, ": restore it from a backup (troupe store restore) or choose another directory"));
  }
  return absl::UnavailableError(message);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const RocksDatabase>> RocksDatabase::Open(const std::string& directory,
                                                                         Mode mode) {
  if (mode == Mode::kCreate)
    TROUPE_RETURN_IF_ERROR(MakeDirectories(directory));  // RocksDB warns of its absence
  std::shared_ptr<RocksDatabase> database(new RocksDatabase(directory));
  std::vector<rocksdb::ColumnFamilyDescriptor> families{{rocksdb::kDefaultColumnFamilyName, TableOptions()}};
  for (const Table table : kAllTables) families.emplace_back(TableName(table), TableOptions());
  const rocksdb::DBOptions options = DatabaseOptions(directory, mode == Mode::kCreate);
  rocksdb::DB* db = nullptr;
  TROUPE_RETURN_IF_ERROR(
      FromRocks(mode == Mode::kReadOnly
                    ? rocksdb::DB::OpenForReadOnly(options, directory, families, &database->handles_, &db)
                    : rocksdb::DB::Open(options, directory, families, &database->handles_, &db),
                directory, "open the metadata in"));
  database->db_.reset(db);
  for (std::size_t i = 0; i < std::size(kAllTables); ++i) {
    database->tables_[static_cast<std::size_t>(kAllTables[i])] = database->handles_[i + 1];
  }
  return database;
}

RocksDatabase::~RocksDatabase() {
  if (!db_) return;
  for (rocksdb::ColumnFamilyHandle* handle : handles_) {
    db_->DestroyColumnFamilyHandle(handle).PermitUncheckedError();
  }
  db_->Close().PermitUncheckedError();  // all that was acknowledged is synced already
}

absl::StatusOr<std::string> RocksDatabase::Get(Table table, std::string_view key) const {
  std::string record;
  const rocksdb::Status got = db_->Get(rocksdb::ReadOptions(), Handle(table), ToSlice(key), &record);
  if (got.IsNotFound()) {
    return absl::NotFoundError(
        absl::StrCat("no record '", std::string(key), "' in table ", TableName(table)));
  }
  TROUPE_RETURN_IF_ERROR(FromRocks(got, directory_, "read the metadata in"));
  TROUPE_ASSIGN_OR_RETURN(const std::string_view value, UnframeRecord(table, key, record));
  return std::string(value);
}

absl::Status RocksDatabase::Scan(Table table, std::string_view prefix,
                                 const MetadataStore::ScanCallback& callback) const {
  const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(rocksdb::ReadOptions(), Handle(table)));
  for (it->Seek(ToSlice(prefix)); it->Valid(); it->Next()) {
    const std::string_view key = ToView(it->key());
    if (!key.starts_with(prefix)) break;
    TROUPE_ASSIGN_OR_RETURN(const std::string_view value, UnframeRecord(table, key, ToView(it->value())));
    if (!callback(key, value)) return absl::OkStatus();
  }
  return FromRocks(it->status(), directory_, "read the metadata in");
}

absl::Status RocksDatabase::Add(const Batch& batch, rocksdb::WriteBatch& out) const {
  for (const Batch::Mutation& mutation : batch.mutations()) {
    rocksdb::ColumnFamilyHandle* handle = Handle(mutation.table);
    const rocksdb::Status added =
        mutation.value
            ? out.Put(handle, mutation.key, FrameRecord(mutation.table, mutation.key, *mutation.value))
            : out.Delete(handle, mutation.key);
    TROUPE_RETURN_IF_ERROR(FromRocks(added, directory_, "prepare a commit to"));
  }
  return absl::OkStatus();
}

absl::Status RocksDatabase::Write(rocksdb::WriteBatch& batch) const {
  rocksdb::WriteOptions options;
  options.sync = true;
  return FromRocks(db_->Write(options, &batch), directory_, "commit to");
}

std::uint64_t RocksDatabase::FirstLog() const {
  std::uint64_t number = 0;
  return db_->GetIntProperty(rocksdb::DB::Properties::kMinLogNumberToKeep, &number) ? number : 0;
}

absl::Status RocksDatabase::VerifyFiles() const {
  return FromRocks(db_->VerifyChecksum(), directory_, "verify the metadata in");
}

absl::Status RocksDatabase::Checkpoint(const std::string& directory) const {
  rocksdb::Checkpoint* made = nullptr;
  TROUPE_RETURN_IF_ERROR(
      FromRocks(rocksdb::Checkpoint::Create(db_.get(), &made), directory_, "copy the metadata in"));
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  // 0: the memory is written out first, so that a copy needs no log.
  return FromRocks(checkpoint->CreateCheckpoint(directory, 0), directory, "copy the metadata to");
}

}  // namespace troupe::storage
