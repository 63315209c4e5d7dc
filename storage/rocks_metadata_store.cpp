#include "storage/rocks_metadata_store.hpp"

#include <sys/statvfs.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/commit_mark.hpp"
#include "storage/directory_lock.hpp"
#include "storage/disk_status.hpp"
#include "storage/durable_file.hpp"
#include "storage/group_committer.hpp"
#include "storage/rocks_database.hpp"

namespace troupe::storage {
namespace {

// A database without FORMAT file is one whose creation was cut short: then it is empty.
absl::Status CheckUnmarked(const RocksDatabase& database, const std::string& directory) {
  for (const Table table : kAllTables) {
    bool any = false;
    TROUPE_RETURN_IF_ERROR(database.Scan(table, "", [&any](auto, auto) { return !(any = true); }));
    if (any) {
      return absl::DataLossError(
          absl::StrCat("data directory ", directory, " has records in table ", TableName(table),
                       " but no FORMAT file: restore it from a backup ", "(troupe store restore)"));
    }
  }
  return absl::OkStatus();
}

// Whatever an opened database has is synced: opening it wrote out what it replayed.
absl::StatusOr<CommitMark> MarkAll(const RocksDatabase& database, const std::string& directory) {
  TROUPE_ASSIGN_OR_RETURN(const std::uint64_t name, DatabaseName(directory + "/db"));
  return CommitMark::Write(directory + "/MARK", {database.sequence(), name});
}

}  // namespace

class RocksMetadataStore::Impl {
 public:
  Impl(std::string directory, DirectoryLock lock, const Limits& limits)
      : directory_(std::move(directory)), lock_(std::move(lock)), limits_(limits) {}

  ~Impl() {
    committer_.reset();
    // Without it the mark is what the file system has written of it by itself: older, never wrong.
    if (mark_) static_cast<void>(mark_->Sync());
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Open();
  absl::Status Checkpoint(const std::string& to);
  const RecoveryReport& recovery() const { return recovery_; }
  absl::StatusOr<std::shared_ptr<const RocksDatabase>> database() const;  // any thread
  GroupCommitter& committer() { return *committer_; }

 private:
  absl::Status WriteGroup(std::span<const GroupCommitter::Waiting> group);
  absl::Status CheckFreeSpace(Bytes wanted) const;
  absl::Status Reopen();
  absl::StatusOr<std::shared_ptr<const RocksDatabase>> OpenAgain() const;

  const std::string directory_;
  const DirectoryLock lock_;
  const Limits limits_;
  mutable std::mutex mutex_;
  std::shared_ptr<const RocksDatabase>
      database_;                               // guarded by mutex_; null when it could not be opened again
  bool failed_ = false;                        // commit thread: the last write failed
  std::optional<CommitMark> mark_;             // commit thread, once it runs
  RecoveryReport recovery_;                    // of the opening; const from then on
  std::unique_ptr<GroupCommitter> committer_;  // last: its thread uses all of the above
};

absl::Status RocksMetadataStore::Impl::Open() {
  const auto begin = std::chrono::steady_clock::now();
  TROUPE_ASSIGN_OR_RETURN(const StoreMarks marks, ReadMarks(directory_));
  TROUPE_ASSIGN_OR_RETURN(recovery_, JudgeStore(directory_, marks));
  if (marks.format == 0) TROUPE_RETURN_IF_ERROR(ClearUnbegun(directory_));
  const auto mode = marks.format == 0 ? RocksDatabase::Mode::kCreate : RocksDatabase::Mode::kExisting;
  TROUPE_ASSIGN_OR_RETURN(database_, RocksDatabase::Open(directory_ + "/db", mode));
  if (marks.format == 0) TROUPE_RETURN_IF_ERROR(CheckUnmarked(*database_, directory_));
  // The mark first: a FORMAT of 2 promises that there is one.
  TROUPE_ASSIGN_OR_RETURN(mark_, MarkAll(*database_, directory_));
  if (marks.format != kMetadataFormat) TROUPE_RETURN_IF_ERROR(WriteFormat(directory_));
  recovery_.sequence = database_->sequence();
  recovery_.took = std::chrono::steady_clock::now() - begin;
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
  auto opened = OpenAgain();
  if (!opened.ok()) {
    auto readable = RocksDatabase::Open(directory_ + "/db", RocksDatabase::Mode::kReadOnly);
    if (readable.ok()) database_ = *std::move(readable);
    return opened.status();
  }
  database_ = *std::move(opened);
  failed_ = false;
  return absl::OkStatus();
}

// A copy is a store of its own: format, mark, database.
absl::Status RocksMetadataStore::Impl::Checkpoint(const std::string& to) {
  const std::string directory = std::filesystem::absolute(to).string();  // as RocksDB wants it
  TROUPE_RETURN_IF_ERROR(MakeDirectories(directory));
  {
    TROUPE_ASSIGN_OR_RETURN(const auto from, database());
    TROUPE_RETURN_IF_ERROR(from->Checkpoint(directory + "/db"));
  }
  TROUPE_ASSIGN_OR_RETURN(const auto copy,
                          RocksDatabase::Open(directory + "/db", RocksDatabase::Mode::kExisting));
  TROUPE_RETURN_IF_ERROR(MarkAll(*copy, directory).status());
  return WriteFormat(directory);
}

// With the mark in memory, which is never older than the one on disk.
absl::StatusOr<std::shared_ptr<const RocksDatabase>> RocksMetadataStore::Impl::OpenAgain() const {
  TROUPE_ASSIGN_OR_RETURN(StoreMarks marks, ReadMarks(directory_));
  if (marks.mark) marks.mark->sequence = mark_->sequence();
  TROUPE_RETURN_IF_ERROR(JudgeStore(directory_, marks).status());
  return RocksDatabase::Open(directory_ + "/db", RocksDatabase::Mode::kExisting);
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
  TROUPE_RETURN_IF_ERROR(written);
  return mark_->Advance(database.sequence());
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

const RecoveryReport& RocksMetadataStore::recovery() const {
  return impl_->recovery();
}

absl::Status RocksMetadataStore::Checkpoint(const std::string& directory) {
  return impl_->Checkpoint(directory);
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
