// The mark of the last synced commit: a file beside the database that says how far it was acknowledged, so
// that a log which ends earlier is known for a loss and not taken for a torn write.
//
// It is written after each synced group and before its acknowledgement, into the page cache: exact after any
// death of the process. It is synced at Open and Close only, since a second fdatasync per group would double
// a commit's time; so after a power failure it may be older than the last acknowledged group. What it then
// does not say, the logs say themselves: a group is begun after the one before was synced (log_scan.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/durable_file.hpp"

namespace troupe::storage {

struct MarkValue {
  std::uint64_t sequence = 0;  // of the newest change that was acknowledged
  std::uint64_t database = 0;  // whose changes they are: DatabaseName
};

// RocksDB's name of the database in `directory` (its file IDENTITY), as a number: another database, or a copy
// that was opened since, has another. NotFound: it has none.
[[nodiscard]] absl::StatusOr<std::uint64_t> DatabaseName(const std::string& directory);

// One owner; one thread at a time.
class CommitMark {
 public:
  // NotFound: there is no mark. DataLoss: neither copy can be read.
  [[nodiscard]] static absl::StatusOr<MarkValue> Read(const std::string& path);
  // Puts a mark there as a whole, durably, in place of an older one, and keeps it open.
  [[nodiscard]] static absl::StatusOr<CommitMark> Write(const std::string& path, const MarkValue& value);

  // A few microseconds: no sync. Errors: those of the disk.
  [[nodiscard]] absl::Status Advance(std::uint64_t sequence);
  [[nodiscard]] absl::Status Sync();
  [[nodiscard]] std::uint64_t sequence() const { return value_.sequence; }

 private:
  CommitMark(std::string path, transport::UniqueFd file, const MarkValue& value)
      : path_(std::move(path)), file_(std::move(file)), value_(value) {}

  std::string path_;
  transport::UniqueFd file_;
  MarkValue value_;
  std::uint64_t turn_ = 1;  // which copy was written last; the other one is written next
};

}  // namespace troupe::storage
