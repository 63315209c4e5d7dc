// CONTROL FLOW: the operators whose steps hold subgraphs (If, Loop, Scan), and what such a step must be before its
// subgraphs are looked into. Their kernels are plans of their own, which gpu/engine makes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "gpu/ops/operator.hpp"
#include "proto/model.pb.h"

namespace troupe::gpu {

// How deep subgraphs may lie in subgraphs.
inline constexpr int kMaxSubgraphDepth = 8;

// Without `infer` and `make`, which need plans.
[[nodiscard]] std::span<const Operator> ControlFlowOperators();
[[nodiscard]] bool IsControlFlow(std::string_view op);
// Null when the operator is none of these, or not at this opset.
[[nodiscard]] const Operator* FindControlFlow(std::string_view op, int opset);

// How many of the step's inputs are the operator's own; captured values come behind them.
[[nodiscard]] std::size_t OwnInputs(const proto::Step& step);

// A Loop or Scan: how many values go from trip to trip, and how many of its outputs gather a part of each trip.
struct LoopCounts {
  std::size_t carried = 0;
  std::size_t gathered = 0;
};
// Of a step that CheckSubgraphs accepts.
[[nodiscard]] LoopCounts CountsOf(const proto::Step& step);

// The step has the subgraphs of its operator (one of no other operator has any), each with as many inputs and outputs
// as the operator demands, and captures inputs that exist. What lies inside the subgraphs is not looked at.
[[nodiscard]] absl::Status CheckSubgraphs(const proto::Step& step);

}  // namespace troupe::gpu
