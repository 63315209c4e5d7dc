// RocksDB's warnings in our log instead of in a file beside the data: RocksDB's own logger aborts the process
// when that file cannot be appended to (7.8.3 with assertions, as Debian builds it), that is on a full disk.
#pragma once

#include <rocksdb/env.h>

#include <memory>
#include <string>

namespace troupe::storage {

// Warnings and worse, each with `directory` before it. Threads: any.
[[nodiscard]] std::shared_ptr<rocksdb::Logger> MakeRocksLogger(const std::string& directory);

}  // namespace troupe::storage
