#include "storage/backup.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "proto/cluster.pb.h"
#include "storage/directory_lock.hpp"
#include "storage/disk_status.hpp"
#include "storage/durable_file.hpp"
#include "storage/rocks_database.hpp"

namespace troupe::storage {
namespace {

namespace fs = std::filesystem;
constexpr char kModels[] = "models/";
constexpr char kMetadata[] = "metadata/";
// More than what any manager hands out in its life (cluster/records/catalogue.cpp counts restarts in 10^9).
constexpr std::uint64_t kFarAbove = 1'000'000'000'000'000;

// Files below `directory`, as paths below it, in order.
absl::StatusOr<std::vector<std::string>> FilesBelow(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator it(directory, error);
  for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) files.push_back(fs::relative(it->path(), directory, ignored).string());
  }
  if (error == std::errc::no_such_file_or_directory) return files;
  if (error) return DiskError(error.value(), "list", directory);
  std::sort(files.begin(), files.end());
  return files;
}

// What RocksDB writes for people, and what locks: no part of what is kept.
bool IsKept(const std::string& file) {
  const std::string name = fs::path(file).filename().string();
  return !name.starts_with("LOG") && name != "LOCK" && name != DirectoryLock::kFile &&
         !name.ends_with(".tmp");
}

absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? DiskError(error.value(), "remove", path) : absl::OkStatus();
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return DiskError(errno, "rename to", to);
  return SyncDirectory(fs::absolute(to).parent_path().string());
}

absl::Status AddMetadata(const std::string& partial, BackupList& list) {
  TROUPE_ASSIGN_OR_RETURN(const auto files, FilesBelow(partial + "/metadata"));
  for (const std::string& file : files) {
    if (!IsKept(file)) continue;
    TROUPE_ASSIGN_OR_RETURN(auto entry, DigestFile(absl::StrCat(partial, "/", kMetadata, file)));
    entry.path = kMetadata + file;
    list.files.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

absl::Status AddModels(const std::string& data, const std::string& partial, BackupReport& report) {
  TROUPE_ASSIGN_OR_RETURN(const auto objects, FilesBelow(data + "/models/objects"));
  TROUPE_RETURN_IF_ERROR(MakeDirectories(partial + "/models/objects"));
  for (const std::string& object : objects) {
    const std::string digest = fs::path(object).filename().string();
    if (!IsSha256Hex(digest)) continue;
    const std::string path = absl::StrCat(kModels, "objects/", object);
    const std::string to = absl::StrCat(partial, "/", path);
    TROUPE_RETURN_IF_ERROR(MakeDirectories(fs::path(to).parent_path().string()));
    auto copied = CopyFile(absl::StrCat(data, "/", path), to);
    if (absl::IsNotFound(copied.status())) continue;  // removed meanwhile: no function refers to it
    if (!copied.ok()) return copied.status();
    if (copied->digest != digest) {
      report.left_out.push_back(digest);
      TROUPE_RETURN_IF_ERROR(RemoveAll(to));
      continue;
    }
    copied->path = path;
    report.list.files.push_back(*std::move(copied));
  }
  return absl::OkStatus();
}

absl::Status SyncTree(const std::string& directory) {
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->is_directory()) TROUPE_RETURN_IF_ERROR(SyncDirectory(it->path().string()));
  }
  if (error) return DiskError(error.value(), "list", directory);
  return SyncDirectory(directory);
}

absl::StatusOr<std::uint64_t> NumberOf(const MetadataStore& store, const std::string& setting) {
  const auto text = store.Get(Table::kSettings, setting);
  if (absl::IsNotFound(text.status())) return 0;
  if (!text.ok()) return text.status();
  std::uint64_t number = 0;
  if (!absl::SimpleAtoi(*text, &number))
    return absl::DataLossError(absl::StrCat("setting ", setting, " is not a valid number"));
  return number;
}

// Homes of states may have changed since the backup, and nodes take nothing of an earlier home. Which nodes had copies in step
// then says nothing of now: copies are made anew. Where the home had lost its disk, the copies are all that there was.
absl::Status RaiseTerms(const MetadataStore& store, Batch& batch) {
  absl::Status damaged;
  const auto scanned =
      store.Scan(Table::kSettings, "state-home/", [&](std::string_view key, std::string_view value) {
        proto::PlacementRecord home;
        if (!home.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
          damaged = absl::DataLossError(absl::StrCat("setting ", std::string(key), " is not a valid record"));
          return false;
        }
        home.set_term(home.term() + kFarAbove);
        if (!home.home_is_empty()) home.clear_in_step();
        batch.Put(Table::kSettings, std::string(key), home.SerializeAsString());
        return true;
      });
  damaged.Update(scanned);
  return damaged;
}

// Members may have seen epochs and revisions that the backup does not know.
absl::Status RaiseNumbers(const std::string& metadata) {
  TROUPE_ASSIGN_OR_RETURN(const auto store, RocksMetadataStore::Open(metadata));
  Batch batch;
  for (const char* setting : {"epoch", "revision", "term/last"}) {
    TROUPE_ASSIGN_OR_RETURN(const std::uint64_t number, NumberOf(*store, setting));
    batch.Put(Table::kSettings, setting, absl::StrCat(number + kFarAbove));
  }
  TROUPE_RETURN_IF_ERROR(RaiseTerms(*store, batch));
  return CommitAndWait(*store, std::move(batch));
}

absl::Status Differs(const std::string& backup, const std::string& path) {
  return absl::DataLossError(
      absl::StrCat("the backup ", backup, " is damaged: ", path,
                   " does not have the digest that its list says: use another backup"));
}

class Restoration {
 public:
  Restoration(const std::string& backup, const std::string& data)
      : backup_(backup), data_(data), fresh_(data + "/metadata.restoring") {}

  absl::StatusOr<RestoreReport> Run(bool other_cluster) {
    TROUPE_ASSIGN_OR_RETURN(report_.list, ReadBackupList(backup_));
    TROUPE_ASSIGN_OR_RETURN(const auto metadata, DirectoryLock::Acquire(data_ + "/metadata"));
    TROUPE_ASSIGN_OR_RETURN(const auto models, DirectoryLock::Acquire(data_ + "/models"));
    if (!other_cluster) TROUPE_RETURN_IF_ERROR(CheckCluster());
    TROUPE_RETURN_IF_ERROR(RemoveAll(fresh_));  // of a restore that was cut short
    for (const auto& file : report_.list.files) {
      TROUPE_RETURN_IF_ERROR(file.path.starts_with(kModels) ? BringModel(file) : BringMetadata(file));
    }
    TROUPE_RETURN_IF_ERROR(RaiseNumbers(fresh_));
    TROUPE_RETURN_IF_ERROR(SyncTree(fresh_));
    TROUPE_RETURN_IF_ERROR(Exchange());
    return report_;
  }

 private:
  absl::Status CheckCluster() const {
    const std::string here = ClusterOf(data_ + "/metadata");
    if (here.empty() || here == report_.list.cluster) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("the data directory ", data_, " belongs to cluster ", here, ", and the backup ", backup_,
                     " to cluster ", report_.list.cluster,
                     ": choose another directory, or say --other-cluster to replace what is there"));
  }

  absl::Status BringMetadata(const BackupList::File& file) {
    if (!file.path.starts_with(kMetadata))
      return absl::OkStatus();  // of a part that this build does not know
    const std::string to = absl::StrCat(fresh_, "/", file.path.substr(sizeof kMetadata - 1));
    TROUPE_RETURN_IF_ERROR(MakeDirectories(fs::path(to).parent_path().string()));
    TROUPE_ASSIGN_OR_RETURN(const auto copied, CopyFile(absl::StrCat(backup_, "/", file.path), to));
    return copied.digest == file.digest ? absl::OkStatus() : Differs(backup_, file.path);
  }

  absl::Status BringModel(const BackupList::File& file) {
    const std::string to = absl::StrCat(data_, "/", file.path);
    if (const auto there = DigestFile(to); there.ok() && there->digest == file.digest) {
      ++report_.models_there;
      return absl::OkStatus();
    }
    const std::string beside = data_ + "/models/tmp/restoring";
    TROUPE_RETURN_IF_ERROR(MakeDirectories(data_ + "/models/tmp"));
    TROUPE_RETURN_IF_ERROR(MakeDirectories(fs::path(to).parent_path().string()));
    TROUPE_RETURN_IF_ERROR(RemoveAll(beside));
    TROUPE_ASSIGN_OR_RETURN(const auto copied, CopyFile(absl::StrCat(backup_, "/", file.path), beside));
    if (copied.digest != file.digest) return Differs(backup_, file.path);
    TROUPE_RETURN_IF_ERROR(Rename(beside, to));
    ++report_.models_copied;
    return absl::OkStatus();
  }

  // In one step: at no moment is there a data directory without metadata, which would begin a new cluster.
  absl::Status Exchange() {
    const std::string place = data_ + "/metadata";
    if (::renameat2(AT_FDCWD, fresh_.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) != 0)
      return DiskError(errno, "exchange for the restored copy:", place);
    TROUPE_RETURN_IF_ERROR(SyncDirectory(data_));
    if (!fs::exists(fresh_ + "/FORMAT") && !fs::exists(fresh_ + "/db")) return RemoveAll(fresh_);
    for (int i = 1; report_.replaced.empty(); ++i) {
      const std::string name = absl::StrCat(data_, "/metadata.replaced-", i);
      if (!fs::exists(name)) report_.replaced = name;
    }
    return Rename(fresh_, report_.replaced);
  }

  const std::string backup_;
  const std::string data_;
  const std::string fresh_;  // the metadata as they will be
  RestoreReport report_;
};

}  // namespace

std::string BackupReport::Line(const std::string& to) const {
  std::string line =
      absl::StrCat("backup of cluster ", list.cluster, ", changes up to number ", list.sequence, ": ",
                   list.files.size(), " files, ", FormatBytes(list.bytes()), ", in ", to);
  if (!left_out.empty())
    absl::StrAppend(&line, "; ", left_out.size(),
                    " damaged models were left out (troupe store check names them)");
  return line;
}

std::string RestoreReport::Line(const std::string& data) const {
  return absl::StrCat(
      "restored cluster ", list.cluster, ", changes up to number ", list.sequence, ", into ", data, ": ",
      models_copied, " models copied, ", models_there, " were there",
      replaced.empty() ? std::string() : absl::StrCat("; what was there before is in ", replaced));
}

absl::StatusOr<BackupReport> MakeBackup(RocksMetadataStore& store, const std::string& data,
                                        const std::string& to) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(to, error)))
    return absl::AlreadyExistsError(
        absl::StrCat(to, " is there already: choose another place for the backup"));
  const std::string partial = to + ".partial";
  TROUPE_RETURN_IF_ERROR(RemoveAll(partial));  // of a backup that was cut short
  BackupReport report;
  // The models first would miss those of functions that are deployed meanwhile.
  TROUPE_RETURN_IF_ERROR(store.Checkpoint(partial + "/metadata"));
  TROUPE_RETURN_IF_ERROR(AddModels(data, partial, report));
  TROUPE_RETURN_IF_ERROR(ReplaceFile(partial + "/models/FORMAT", "troupe-objects 1\n"));
  TROUPE_RETURN_IF_ERROR(AddMetadata(partial, report.list));
  report.list.cluster = ClusterOf(partial + "/metadata");
  TROUPE_ASSIGN_OR_RETURN(const MarkValue mark, CommitMark::Read(partial + "/metadata/MARK"));
  report.list.sequence = mark.sequence;
  TROUPE_RETURN_IF_ERROR(SyncTree(partial));
  TROUPE_RETURN_IF_ERROR(WriteBackupList(partial, report.list));
  TROUPE_RETURN_IF_ERROR(Rename(partial, to));
  return report;
}

absl::StatusOr<RestoreReport> RestoreBackup(const std::string& backup, const std::string& data,
                                            bool other_cluster) {
  return Restoration(backup, data).Run(other_cluster);
}

std::string ClusterOf(const std::string& metadata) {
  const auto database = RocksDatabase::Open(metadata + "/db", RocksDatabase::Mode::kReadOnly);
  if (!database.ok()) return "";
  return (*database)->Get(Table::kSettings, "cluster").value_or("");
}

}  // namespace troupe::storage
