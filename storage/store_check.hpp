// What an operator sees of a data directory (or of a backup, which is laid out as one) that no manager has
// open: whether all of it is whole, and its records as JSON. Nothing is changed.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "storage/metadata_store.hpp"
#include "storage/store_recovery.hpp"

namespace troupe::storage {

struct CheckReport {
  RecoveryReport recovery;               // what an opening would find and drop
  std::map<Table, std::size_t> records;  // that are whole
  std::size_t models = 0;                // objects that have their digest
  Bytes model_bytes;
  std::vector<std::string> problems;  // one line each; empty: all is whole
};

// Reads every byte of the directory: metadata, tables, logs, models; compares all checksums and digests,
// parses every record, looks for the models that functions refer to, and in a backup for its whole list.
// NotFound: there are no metadata of Troupe's. FailedPrecondition: a manager has it open, it is of a newer
// format, or a backup that is not finished. Damage is reported in `problems`, not as an error.
[[nodiscard]] absl::StatusOr<CheckReport> CheckStore(const std::string& data);

// Calls `line` with one JSON object per record: {"table", "key", "value"}; a value that is not a message is a
// text, or {"hex"}. `table`, `prefix`: only these records. Ends at the first damaged record.
[[nodiscard]] absl::Status DumpStore(const std::string& data, std::optional<Table> table,
                                     const std::string& prefix,
                                     const std::function<void(const std::string&)>& line);

// InvalidArgument lists the tables.
[[nodiscard]] absl::StatusOr<Table> FindTable(const std::string& name);

}  // namespace troupe::storage
