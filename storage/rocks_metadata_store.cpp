#include "storage/rocks_metadata_store.hpp"

#include <rocksdb/db.h>
#include <sys/statvfs.h>

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.hpp"
#include "storage/directory_lock.hpp"
#include "storage/disk_status.hpp"
#include "storage/durable_file.hpp"
#include "storage/group_committer.hpp"
#include "storage/record_frame.hpp"

namespace troupe::storage {
namespace {

constexpr int kFormat = 1;
constexpr char kFormatPrefix[] = "troupe-metadata ";
// Commits stop while less than this is free: RocksDB needs room to write its memory out when it resumes.
constexpr Bytes kDiskReserve = MiB(8);

rocksdb::Slice ToSlice(std::string_view text) {
  return {text.data(), text.size()};
}
std::string_view ToView(const rocksdb::Slice& slice) {
  return {slice.data(), slice.size()};
}

rocksdb::DBOptions DatabaseOptions(bool create) {
  rocksdb::DBOptions options;
  options.create_if_missing = create;
  options.create_missing_column_families = true;
  options.paranoid_checks = true;
  // A record cut short at the end was never acknowledged; damage anywhere else refuses to open.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.max_total_wal_size = MiB(64).count();
  options.max_background_jobs = 2;
  options.keep_log_file_num = 2;
  options.max_log_file_size = MiB(4).count();
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
  if (status.IsCorruption()) {
    return absl::DataLossError(absl::StrCat(message, ": restore it from a backup; nothing was changed"));
  }
  return absl::UnavailableError(message);
}

// The number in the FORMAT file; 0 when there is none.
absl::StatusOr<int> ReadFormat(const std::string& directory) {
  auto text = ReadSmallFile(directory + "/FORMAT", 64);
  if (absl::IsNotFound(text.status())) return 0;
  if (!text.ok()) return text.status();
  absl::string_view rest = *text;
  int format = 0;
  if (!absl::ConsumePrefix(&rest, kFormatPrefix) || !absl::SimpleAtoi(rest, &format) || format < 1) {
    return absl::DataLossError(absl::StrCat(
        directory, "/FORMAT does not name a format of Troupe's metadata: ", "is this the right directory?"));
  }
  if (format > kFormat) {
    return absl::FailedPreconditionError(absl::StrCat("data directory ", directory, " has metadata format ",
                                                      format, ", this build reads up to ", kFormat,
                                                      ": use a newer release or choose another directory"));
  }
  return format;
}

}  // namespace

// The database and its handles; the members below the constructor run on the threads that their comments
// name.
class RocksMetadataStore::Impl {
 public:
  Impl(std::string directory, DirectoryLock lock)
      : directory_(std::move(directory)), lock_(std::move(lock)) {}
  ~Impl();

  absl::Status Open(const Limits& limits);
  absl::Status WriteGroup(std::span<const GroupCommitter::Waiting> group);  // commit thread
  rocksdb::ColumnFamilyHandle* Handle(Table table) const { return tables_[static_cast<std::size_t>(table)]; }
  rocksdb::DB* db() const { return db_.get(); }
  const std::string& directory() const { return directory_; }
  GroupCommitter& committer() { return *committer_; }

 private:
  absl::Status OpenDatabase(bool create);
  absl::Status CheckUnmarked() const;
  absl::Status CheckFreeSpace(Bytes wanted) const;

  const std::string directory_;
  const DirectoryLock lock_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
  std::array<rocksdb::ColumnFamilyHandle*, 16> tables_{};  // by Table's number
  bool failed_ = false;                                    // commit thread: the last write failed
  std::unique_ptr<GroupCommitter> committer_;
};

RocksMetadataStore::Impl::~Impl() {
  committer_.reset();
  if (!db_) return;
  for (rocksdb::ColumnFamilyHandle* handle : handles_)
    db_->DestroyColumnFamilyHandle(handle).PermitUncheckedError();
  db_->Close().PermitUncheckedError();  // all that was acknowledged is synced already
}

absl::Status RocksMetadataStore::Impl::Open(const Limits& limits) {
  TROUPE_ASSIGN_OR_RETURN(const int format, ReadFormat(directory_));
  // With a FORMAT file there was a database: its absence is a loss, not a fresh start.
  TROUPE_RETURN_IF_ERROR(OpenDatabase(format == 0));
  if (format == 0) {
    TROUPE_RETURN_IF_ERROR(CheckUnmarked());
    TROUPE_RETURN_IF_ERROR(ReplaceFile(directory_ + "/FORMAT", absl::StrCat(kFormatPrefix, kFormat, "\n")));
  }
  committer_ = std::make_unique<GroupCommitter>(
      GroupCommitter::Limits{limits.queued_batches, limits.queued_bytes, limits.group_batches,
                             limits.group_bytes},
      [this](std::span<const GroupCommitter::Waiting> group) { return WriteGroup(group); });
  return absl::OkStatus();
}

absl::Status RocksMetadataStore::Impl::OpenDatabase(bool create) {
  const std::string path = directory_ + "/db";
  std::vector<rocksdb::ColumnFamilyDescriptor> families{{rocksdb::kDefaultColumnFamilyName, TableOptions()}};
  for (const Table table : kAllTables) families.emplace_back(TableName(table), TableOptions());
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(DatabaseOptions(create), path, families, &handles_, &db);
  if (opened.IsInvalidArgument()) {  // no database there, or a family that this build does not know
    return absl::DataLossError(absl::StrCat("cannot open the metadata in ", directory_, ": ",
                                            opened.ToString(),
                                            ": restore it from a backup or choose another directory"));
  }
  TROUPE_RETURN_IF_ERROR(FromRocks(opened, path, "open the metadata in"));
  db_.reset(db);
  for (std::size_t i = 0; i < std::size(kAllTables); ++i) {
    tables_[static_cast<std::size_t>(kAllTables[i])] = handles_[i + 1];
  }
  return absl::OkStatus();
}

// A database without FORMAT file is one whose creation was cut short: then it is empty.
absl::Status RocksMetadataStore::Impl::CheckUnmarked() const {
  for (const Table table : kAllTables) {
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(rocksdb::ReadOptions(), Handle(table)));
    it->SeekToFirst();
    if (it->Valid()) {
      return absl::DataLossError(absl::StrCat("data directory ", directory_, " has records in table ",
                                              TableName(table),
                                              " but no FORMAT file: restore it from a backup"));
    }
  }
  return absl::OkStatus();
}

absl::Status RocksMetadataStore::Impl::CheckFreeSpace(Bytes wanted) const {
  struct statvfs space {};
  if (::statvfs(directory_.c_str(), &space) != 0) return absl::OkStatus();  // the write itself will tell
  const Bytes free(static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize);
  return free < kDiskReserve + wanted ? DiskFullError(directory_, "commit to") : absl::OkStatus();
}

absl::Status RocksMetadataStore::Impl::WriteGroup(std::span<const GroupCommitter::Waiting> group) {
  rocksdb::WriteBatch batch;
  for (const GroupCommitter::Waiting& waiting : group) {
    for (const Batch::Mutation& mutation : waiting.batch.mutations()) {
      const rocksdb::Status added =
          mutation.value ? batch.Put(Handle(mutation.table), mutation.key,
                                     FrameRecord(mutation.table, mutation.key, *mutation.value))
                         : batch.Delete(Handle(mutation.table), mutation.key);
      TROUPE_RETURN_IF_ERROR(FromRocks(added, directory_, "prepare a commit to"));
    }
  }
  TROUPE_RETURN_IF_ERROR(CheckFreeSpace(Bytes(batch.GetDataSize() * 2)));
  if (failed_) {
    TROUPE_RETURN_IF_ERROR(FromRocks(db_->Resume(), directory_, "commit to"));
    failed_ = false;
  }
  rocksdb::WriteOptions options;
  options.sync = true;
  const rocksdb::Status written = db_->Write(options, &batch);
  failed_ = !written.ok();
  return FromRocks(written, directory_, "commit to");
}

RocksMetadataStore::RocksMetadataStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RocksMetadataStore::~RocksMetadataStore() = default;

absl::StatusOr<std::unique_ptr<RocksMetadataStore>> RocksMetadataStore::Open(const std::string& directory,
                                                                             const Limits& limits) {
  TROUPE_ASSIGN_OR_RETURN(DirectoryLock lock, DirectoryLock::Acquire(directory));
  auto impl = std::make_unique<Impl>(directory, std::move(lock));
  TROUPE_RETURN_IF_ERROR(impl->Open(limits));
  return std::unique_ptr<RocksMetadataStore>(new RocksMetadataStore(std::move(impl)));
}

void RocksMetadataStore::Commit(Batch batch, CommitDone done) {
  if (absl::Status valid = ValidateBatch(batch); !valid.ok()) return done(std::move(valid));
  impl_->committer().Push(std::move(batch), std::move(done));
}

absl::StatusOr<std::string> RocksMetadataStore::Get(Table table, std::string_view key) const {
  std::string record;
  const rocksdb::Status got =
      impl_->db()->Get(rocksdb::ReadOptions(), impl_->Handle(table), ToSlice(key), &record);
  if (got.IsNotFound()) {
    return absl::NotFoundError(
        absl::StrCat("no record '", std::string(key), "' in table ", TableName(table)));
  }
  TROUPE_RETURN_IF_ERROR(FromRocks(got, impl_->directory(), "read the metadata in"));
  TROUPE_ASSIGN_OR_RETURN(const std::string_view value, UnframeRecord(table, key, record));
  return std::string(value);
}

absl::Status RocksMetadataStore::Scan(Table table, std::string_view prefix,
                                      const ScanCallback& callback) const {
  const std::unique_ptr<rocksdb::Iterator> it(
      impl_->db()->NewIterator(rocksdb::ReadOptions(), impl_->Handle(table)));
  for (it->Seek(ToSlice(prefix)); it->Valid(); it->Next()) {
    const std::string_view key = ToView(it->key());
    if (!key.starts_with(prefix)) break;
    TROUPE_ASSIGN_OR_RETURN(const std::string_view value, UnframeRecord(table, key, ToView(it->value())));
    if (!callback(key, value)) return absl::OkStatus();
  }
  return FromRocks(it->status(), impl_->directory(), "read the metadata in");
}

}  // namespace troupe::storage
