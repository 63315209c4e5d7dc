// What must hold of usage: what the manager's store has of each function is what the workers counted for it, but for
// what went with the memory or the disk of a machine: nothing is lost, and nothing counts twice.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/usage.pb.h"

namespace troupe::sim {

struct UsageSum {
  std::uint64_t gpu_ns = 0;
  std::uint64_t runs = 0;
  std::uint64_t bytes_moved = 0;
};
// What one function should have been charged.
struct ExpectedUsage {
  UsageSum counted{};
  UsageSum lost{};    // with a machine, for certain
  UsageSum unsure{};  // with a machine's disk, unless the manager had stored it before
};

// A line for each function that was charged too little or too much. By UsageKey.
[[nodiscard]] std::vector<std::string> CheckUsage(const std::map<std::string, ExpectedUsage>& expected,
                                                  const std::vector<proto::UsageAmount>& stored);

}  // namespace troupe::sim
