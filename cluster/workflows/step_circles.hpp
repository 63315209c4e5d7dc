// STEP CIRCLES: steps of a workflow that wait for each other. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/workflow.pb.h"

namespace troupe::cluster {

struct StepCircle {
  std::uint32_t line = 0;  // of its first step
  std::vector<std::string>
      path{};  // in the direction in which data flows; the first step stands at the end, too
};
// One for each circle that is found, and one at least when there is any. Steps that the spec does not have are passed over.
[[nodiscard]] std::vector<StepCircle> StepCircles(const proto::WorkflowSpec& spec);

}  // namespace troupe::cluster
