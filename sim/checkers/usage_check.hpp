// What must hold of usage: what the manager's store has of each function is what the workers counted for it, but for
// what went with the memory or the disk of a machine: nothing is lost, and nothing counts twice.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "proto/usage.pb.h"

namespace troupe::sim {

// What one function should have been charged for what workers count: GPU time, runs and bytes moved.
struct ExpectedUsage {
  proto::UsageAmount counted{};
  proto::UsageAmount lost{};    // with a machine, for certain
  proto::UsageAmount unsure{};  // with a machine's disk, unless the manager had stored it before
};

// A line for each function that was charged too little or too much. By UsageKey.
[[nodiscard]] std::vector<std::string> CheckUsage(const std::map<std::string, ExpectedUsage>& expected,
                                                  const std::vector<proto::UsageAmount>& stored);

}  // namespace troupe::sim
