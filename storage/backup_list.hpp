// The list of a backup's files with their digests: its file BACKUP. It is written last, so a backup that was
// cut short has none; and what is copied out of a backup is compared with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"

namespace troupe::storage {

struct BackupList {
  struct File {
    std::string path;    // below the backup's directory
    std::string digest;  // SHA-256
    Bytes size;
  };
  std::string cluster;         // id of the cluster whose backup it is; "": its manager never started
  std::uint64_t sequence = 0;  // of the newest change in it
  std::vector<File> files;

  [[nodiscard]] Bytes bytes() const;
};

// FailedPrecondition: `backup` has no list (it was cut short, or is no backup), or one of a newer format.
// DataLoss: the list is damaged. InvalidArgument: it names a file outside.
[[nodiscard]] absl::StatusOr<BackupList> ReadBackupList(const std::string& backup);
// Durable when it returns.
[[nodiscard]] absl::Status WriteBackupList(const std::string& backup, const BackupList& list);

// Copies a file, durably, its directory's entry apart; answers its digest and size.
[[nodiscard]] absl::StatusOr<BackupList::File> CopyFile(const std::string& from, const std::string& to);
// Digest and size of a file; `path` is left as given.
[[nodiscard]] absl::StatusOr<BackupList::File> DigestFile(const std::string& path);

}  // namespace troupe::storage
