// What lies in a metadata directory is judged here before it is opened for writing, since opening changes it:
// the format, the mark of the last acknowledged commit, and whether all that was acknowledged can be read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/formats.hpp"
#include "storage/commit_mark.hpp"

namespace troupe::storage {

inline constexpr int kMetadataFormat = proto::kMetadataFormat;

// What an opening found, and did about it.
struct RecoveryReport {
  int format = 0;              // that was found; 0: an empty directory
  std::uint64_t mark = 0;      // of the last acknowledged change, as it was found; 0: there was none
  std::uint64_t sequence = 0;  // of the newest change that is there
  std::string dropped_from;    // the log whose end was dropped since it was never acknowledged; "": none
  Bytes dropped;
  Duration took{};

  // One line for the log: "metadata of format 2: ...".
  [[nodiscard]] std::string Line() const;
};

// FORMAT and MARK of a metadata directory; nothing is changed. FailedPrecondition: a newer format. DataLoss:
// a file that is not what it should be.
struct StoreMarks {
  int format = 0;  // 0: no FORMAT file
  std::optional<MarkValue> mark;
};
[[nodiscard]] absl::StatusOr<StoreMarks> ReadMarks(const std::string& directory);
[[nodiscard]] absl::Status WriteFormat(const std::string& directory);

// For a directory without FORMAT: removes what a creation that was cut short has left of the database, if
// neither the mark nor a log nor a table says that there was ever a record. A power failure keeps any part of
// it, and what is in parts cannot be opened.
[[nodiscard]] absl::Status ClearUnbegun(const std::string& directory);

// Whether everything that was acknowledged can be read from DIRECTORY/db, without changing it. DataLoss says
// what is missing and names `troupe store restore`. Returns what an opening will drop, without `took`.
[[nodiscard]] absl::StatusOr<RecoveryReport> JudgeStore(const std::string& directory,
                                                        const StoreMarks& marks);

}  // namespace troupe::storage
