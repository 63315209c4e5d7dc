// USAGE FILE: the node's usage ledger on its disk, beside the pages of its workers in its run directory
// (docs/storage-format.md has the layout).
#pragma once

#include <string>

#include "actors/core/work_pool.hpp"
#include "actors/node/meter_access.hpp"
#include "proto/usage.pb.h"

namespace troupe::actors {

struct KeptUsage {
  proto::NodeUsage usage{};
  bool is_new = false;    // the file was not there or was damaged, so that a new ledger begins
  std::string warning{};  // what was wrong with the file; empty: nothing
};
// Blocks: for the start. A damaged file is set aside as PATH.damaged.
[[nodiscard]] KeptUsage LoadUsage(const std::string& path);
// Reads the pages in `run` and writes the file at `path`, on `pool`, which outlives the actors.
[[nodiscard]] MeterAccess FileMeterAccess(const std::string& path, const std::string& run, WorkPool& pool);

}  // namespace troupe::actors
