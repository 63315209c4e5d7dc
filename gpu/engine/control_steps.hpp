// CONTROL STEPS: what an If, Loop or Scan makes, and the kernel that runs its subgraphs.
//
//   subgraph + what is known of its inputs -> SubgraphBuilder -> Program -> CpuPlan, inside the step's kernel
//
// A branch that the run chooses, and a body that it repeats, have the memory of their plans as scratch. Where shapes
// differ between branches or from trip to trip, outputs are planned for the largest and their shapes told by the run.
// What has no largest shape is refused.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/engine/program.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// So often a Loop goes round at most: a run that would go on ends with an error.
inline constexpr std::int64_t kMaxTrips = 100'000;

// Builds the program of a subgraph from what is known of its inputs: the inputs that its step gives it come first, its
// captures after them.
using SubgraphBuilder =
    std::function<absl::StatusOr<Program>(const proto::Subgraph&, std::span<const ValueInfo>)>;

struct ControlStep {
  std::vector<ValueInfo> outputs;
  std::unique_ptr<Kernel> kernel;
};

// The branch of an If whose condition is known; else null.
[[nodiscard]] const proto::Subgraph* KnownBranch(const StepContext& ctx, std::span<const ValueInfo> in);
// How often a Loop goes round at most, when that is known, its condition is not false at first, and the steps of all
// trips are at most `steps`.
[[nodiscard]] std::optional<std::int64_t> KnownTrips(const StepContext& ctx, std::span<const ValueInfo> in,
                                                     std::int64_t steps);
// What is known of the captures of one of the step's subgraphs.
[[nodiscard]] std::vector<ValueInfo> CapturedInfos(const proto::Subgraph& subgraph,
                                                   std::span<const ValueInfo> in);
// What a program makes; nothing of it is a constant for others.
[[nodiscard]] std::vector<ValueInfo> OutputInfos(const Program& program);

// Of a step that CheckSubgraphs accepts, whose inputs are row-major. InvalidArgument or Unimplemented names the step and
// what cannot be planned.
[[nodiscard]] absl::StatusOr<ControlStep> MakeControlStep(const StepContext& ctx,
                                                          std::span<const ValueInfo> in,
                                                          const SubgraphBuilder& build);

// What the step makes, without kernels that could run. The importer asks this.
[[nodiscard]] absl::StatusOr<std::vector<ValueInfo>> InferControlStep(const StepContext& ctx,
                                                                      std::span<const ValueInfo> in);

}  // namespace troupe::gpu
