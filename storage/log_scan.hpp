// What RocksDB's write-ahead logs hold, read without changing a byte. RocksDB's own replay drops what it
// cannot read at the end of a log; this reader tells whether that was ever acknowledged. The format is
// RocksDB's (its wiki, "Write Ahead Log File Format"): blocks of 32 KiB, records in one or several parts,
// each with a masked CRC-32C; a record is one committed group and begins with the number of its first change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"

namespace troupe::storage {

struct LogScan {
  // Of the newest change that can be read without a hole before it; 0: none.
  std::uint64_t last = 0;
  std::uint64_t changes = 0;  // that can be read
  // The first place that cannot be read; "": there is none.
  std::string damaged_file;
  std::uint64_t damaged_at = 0;  // byte of that file
  std::string damage;            // what is wrong there, for people
  Bytes unread;                  // from there to the end of what was written into that file
  // Changes up to this one were synced, and so acknowledged: a group that was begun after them can be read.
  // Only told where something is damaged.
  std::uint64_t proven = 0;
  // A whole group follows and changes before it are nowhere: a log, or a part of one, was taken away.
  bool hole = false;

  [[nodiscard]] bool damaged() const { return !damaged_file.empty(); }
  // Whether what cannot be read is, at least in part, something that was acknowledged.
  [[nodiscard]] bool lost() const { return hole || (damaged() && proven > last); }
};

// Reads every log (NNNNNN.log) of a database from number `first` on, in the order of their numbers. An absent
// directory has none. Takes as long as reading the files (at most max_total_wal_size and one log more).
// Errors: those of the disk.
[[nodiscard]] absl::StatusOr<LogScan> ScanLogs(const std::string& directory, std::uint64_t first = 0);

// The same for one log's bytes, on top of what `scan` knows of the logs before it.
void ScanLog(const std::string& file, std::span<const std::byte> bytes, LogScan& scan);

}  // namespace troupe::storage
