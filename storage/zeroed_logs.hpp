// The file system that RocksDB's logs lie on: a log is made longer ahead of its records, in large steps of
// zeros that are synced. A record then overwrites what is there, and its sync carries data only; where each
// append makes the file longer, the file system's own journal has to be written with each.
//
// A log that was not closed ends in zeros: readers of logs take them for the end (log_scan.hpp, RocksDB).
#pragma once

#include <rocksdb/env.h>

#include "base/units.hpp"

namespace troupe::storage {

inline constexpr Bytes kLogStep = KiB(256);

// One for the process, never destroyed.
rocksdb::Env* ZeroedLogs();

}  // namespace troupe::storage
