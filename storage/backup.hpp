// Backups of a manager's data directory, and their return. A backup is laid out as a data directory
// (metadata/, models/) beside its list of files (backup_list.hpp), so whatever reads the one reads the other.
//
//   nothing -> TO.partial -(all files, then the list)-> TO           a backup is complete, or is none
//   DATA/metadata -(restore, in one step)-> DATA/metadata.replaced-N  and the backup's copy is in its place
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/backup_list.hpp"
#include "storage/rocks_metadata_store.hpp"

namespace troupe::storage {

struct BackupReport {
  BackupList list;
  std::vector<std::string> left_out;  // models whose bytes do not have their digest
  [[nodiscard]] std::string Line(const std::string& to) const;
};

// Copies what `store` has now, and the models of the data directory, to `to`. Blocks for as long as that
// takes; commits go on meanwhile, and models that come later are not in it. AlreadyExists: `to` is there.
// Other errors: those of the disk; nothing is at `to` then.
[[nodiscard]] absl::StatusOr<BackupReport> MakeBackup(RocksMetadataStore& store, const std::string& data,
                                                      const std::string& to);

struct RestoreReport {
  BackupList list;
  std::size_t models_copied = 0;
  std::size_t models_there = 0;  // already, whole
  std::string replaced;          // where the metadata that were there are now; "": there were none
  [[nodiscard]] std::string Line(const std::string& data) const;
};

// Puts a backup's metadata in the place of the data directory's, and adds its models to those of the
// directory. Every file is compared with its digest before anything is replaced. Epochs and revisions go on
// far above the backup's, so that members which saw newer ones take what they are told. FailedPrecondition:
// no complete backup; the directory is in use; it belongs to another cluster and `other_cluster` is not set.
// DataLoss: the backup is damaged.
[[nodiscard]] absl::StatusOr<RestoreReport> RestoreBackup(const std::string& backup, const std::string& data,
                                                          bool other_cluster);

// The cluster id that a metadata directory has, without changing it; "" when it cannot be told.
[[nodiscard]] std::string ClusterOf(const std::string& metadata);

}  // namespace troupe::storage
