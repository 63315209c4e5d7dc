// CHAOS PLANS: which faults an operator wants in a staging cluster, and when. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/admin.pb.h"

namespace troupe::shell {

struct PlannedFault {
  Duration at{};  // after the beginning
  proto::InjectFault fault;
};
struct ChaosPlan {
  std::vector<PlannedFault> faults;            // in the order of their times
  Duration settle = std::chrono::seconds(60);  // after the last one has ended, until all is to be well
};

// "kill-worker": a kind as plans have it.
[[nodiscard]] std::string FaultName(proto::InjectFault::Kind kind);
// "kill-worker at node-0/1", "stop-daemon at gateway-0 for 2s"
[[nodiscard]] std::string DescribeFault(const proto::InjectFault& fault);
// InvalidArgument that names every mistake with its line.
[[nodiscard]] absl::StatusOr<ChaosPlan> ParseChaosPlan(const std::string& yaml);

}  // namespace troupe::shell
