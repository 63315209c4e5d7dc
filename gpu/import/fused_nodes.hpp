// FUSED NODES: operators of com.microsoft that stand for a short chain of standard ones become that chain when a file
// is read, so that every pass, kernel and device that knows the standard operators serves them. Those with kernels of
// their own stay as they are (gpu/ops/families.hpp).
#pragma once

#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "gpu/import/graph.hpp"

namespace troupe::gpu {

// An operator that becomes a chain, for docs/onnx.md.
struct FusedNode {
  std::string_view op;       // "com.microsoft.BiasGelu"
  std::string_view becomes;  // "Add, Gelu"
};
[[nodiscard]] std::span<const FusedNode> FusedNodes();
[[nodiscard]] bool IsFusedNode(std::string_view op);

// Appends `step` to the graph: as it is, or as its chain. Constants that a chain needs become the graph's.
// InvalidArgument or Unimplemented, with the operator and what is wrong, for inputs, outputs and attributes that its
// chain does not honour: none is silently ignored.
[[nodiscard]] absl::Status AppendStep(proto::Step step, Graph& graph);

}  // namespace troupe::gpu
