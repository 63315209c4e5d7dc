#include "storage/rocks_metadata_store.hpp"

#include <sys/statvfs.h>

#include <mutex>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "storage/directory_lock.hpp"
#include "storage/disk_status.hpp"
#include "storage/durable_file.hpp"
#include "storage/group_committer.hpp"
#include "storage/rocks_database.hpp"

namespace troupe::storage {
namespace {

constexpr int kFormat = 1;
constexpr char kFormatPrefix[] = "troupe-metadata ";

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

// A database without FORMAT file is one whose creation was cut short: then it is empty.
absl::Status CheckUnmarked(const RocksDatabase& database, const std::string& directory) {
  for (const Table table : kAllTables) {
    bool any = false;
    TROUPE_RETURN_IF_ERROR(database.Scan(table, "", [&any](auto, auto) { return !(any = true); }));
    if (any) {
      return absl::DataLossError(absl::StrCat("data directory ", directory, " has records in table ",
                                              TableName(table),
                                              " but no FORMAT file: restore it from a backup"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

class RocksMetadataStore::Impl {
 public:
  Impl(std::string directory, DirectoryLock lock, const Limits& limits)
      : directory_(std::move(directory)), lock_(std::move(lock)), limits_(limits) {}

  absl::Status Open();
  absl::StatusOr<std::shared_ptr<const RocksDatabase>> database() const;  // any thread
  GroupCommitter& committer() { return *committer_; }

 private:
  absl::Status WriteGroup(std::span<const GroupCommitter::Waiting> group);
  absl::Status CheckFreeSpace(Bytes wanted) const;
  absl::Status Reopen();

  const std::string directory_;
  const DirectoryLock lock_;
  const Limits limits_;
  mutable std::mutex mutex_;
  std::shared_ptr<const RocksDatabase>
      database_;                               // guarded by mutex_; null when it could not be opened again
  bool failed_ = false;                        // commit thread: the last write failed
  std::unique_ptr<GroupCommitter> committer_;  // last: its thread uses all of the above
};

absl::Status RocksMetadataStore::Impl::Open() {
  TROUPE_ASSIGN_OR_RETURN(const int format, ReadFormat(directory_));
  const auto mode = format == 0 ? RocksDatabase::Mode::kCreate : RocksDatabase::Mode::kExisting;
  TROUPE_ASSIGN_OR_RETURN(database_, RocksDatabase::Open(directory_ + "/db", mode));
  if (format == 0) {
    TROUPE_RETURN_IF_ERROR(CheckUnmarked(*database_, directory_));
    TROUPE_RETURN_IF_ERROR(ReplaceFile(directory_ + "/FORMAT", absl::StrCat(kFormatPrefix, kFormat, "\n")));
  }
  committer_ = std::make_unique<GroupCommitter>(
      GroupCommitter::Limits{limits_.queued_batches, limits_.queued_bytes, limits_.group_batches,
                             limits_.group_bytes},
      [this](std::span<const GroupCommitter::Waiting> group) { return WriteGroup(group); });
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const RocksDatabase>> RocksMetadataStore::Impl::database() const {
  const std::lock_guard lock(mutex_);
  if (database_) return database_;
  return absl::UnavailableError(absl::StrCat("the metadata in ", directory_,
                                             " could not be opened again after a failed write: see the log"));
}

absl::Status RocksMetadataStore::Impl::CheckFreeSpace(Bytes wanted) const {
  struct statvfs space {};
  if (limits_.disk_reserve == Bytes(0) || ::statvfs(directory_.c_str(), &space) != 0) return absl::OkStatus();
  const Bytes free(static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize);
  return free < limits_.disk_reserve + wanted ? DiskFullError(directory_, "commit to") : absl::OkStatus();
}

// After a failed write the log's end is unknown; reading it again tells. Readers keep their hold on the
// database, and it cannot be opened twice: while one of them scans, commits go on failing.
absl::Status RocksMetadataStore::Impl::Reopen() {
  const std::lock_guard lock(mutex_);
  if (database_.use_count() > 1) {
    return absl::UnavailableError(
        absl::StrCat("the metadata in ", directory_, " are being read, and must be opened again: try again"));
  }
  database_.reset();
  auto opened = RocksDatabase::Open(directory_ + "/db", RocksDatabase::Mode::kExisting);
  if (!opened.ok()) {
    auto readable = RocksDatabase::Open(directory_ + "/db", RocksDatabase::Mode::kReadOnly);
    if (readable.ok()) database_ = *std::move(readable);
    return opened.status();
  }
  database_ = *std::move(opened);
  failed_ = false;
  return absl::OkStatus();
}

absl::Status RocksMetadataStore::Impl::WriteGroup(std::span<const GroupCommitter::Waiting> group) {
  Bytes bytes;
  for (const GroupCommitter::Waiting& waiting : group) bytes += waiting.batch.bytes();
  TROUPE_RETURN_IF_ERROR(CheckFreeSpace(bytes * 2));
  if (failed_) TROUPE_RETURN_IF_ERROR(Reopen());
  const RocksDatabase& database = *database_;  // only this thread replaces it
  rocksdb::WriteBatch batch;
  for (const GroupCommitter::Waiting& waiting : group) {
    TROUPE_RETURN_IF_ERROR(database.Add(waiting.batch, batch));
  }
  const absl::Status written = database.Write(batch);
  failed_ = !written.ok();
  return written;
}

RocksMetadataStore::RocksMetadataStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RocksMetadataStore::~RocksMetadataStore() = default;

absl::StatusOr<std::unique_ptr<RocksMetadataStore>> RocksMetadataStore::Open(const std::string& directory,
                                                                             const Limits& limits) {
  TROUPE_ASSIGN_OR_RETURN(DirectoryLock lock, DirectoryLock::Acquire(directory));
  auto impl = std::make_unique<Impl>(directory, std::move(lock), limits);
  TROUPE_RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<RocksMetadataStore>(new RocksMetadataStore(std::move(impl)));
}

void RocksMetadataStore::Commit(Batch batch, CommitDone done) {
  if (absl::Status valid = ValidateBatch(batch); !valid.ok()) return done(std::move(valid));
  impl_->committer().Push(std::move(batch), std::move(done));
}

absl::StatusOr<std::string> RocksMetadataStore::Get(Table table, std::string_view key) const {
  TROUPE_ASSIGN_OR_RETURN(const auto database, impl_->database());
  return database->Get(table, key);
}

absl::Status RocksMetadataStore::Scan(Table table, std::string_view prefix,
                                      const ScanCallback& callback) const {
  TROUPE_ASSIGN_OR_RETURN(const auto database, impl_->database());
  return database->Scan(table, prefix, callback);
}

}  // namespace troupe::storage
