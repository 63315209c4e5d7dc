// BRANCH KERNEL: runs one of two plans, which one its first input says.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "gpu/engine/cpu_plan.hpp"
#include "gpu/ops/frame_pool.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// One subgraph made ready: its plan, and which inputs of its step it captures.
struct SubgraphPlan {
  std::unique_ptr<CpuPlan> plan;
  std::vector<std::size_t> captures;
};
[[nodiscard]] SubgraphPlan MakeSubgraphPlan(const proto::Subgraph& subgraph, Program program);

class BranchKernel final : public Kernel {
 public:
  // For true, for false.
  explicit BranchKernel(std::array<SubgraphPlan, 2> branches) : branches_(std::move(branches)) {}
  [[nodiscard]] Bytes scratch() const override;
  absl::Status Run(std::span<const TensorView> in, std::span<TensorView> out,
                   std::byte* scratch) const override;
  absl::Status RunInParts(std::span<const TensorView> in, std::span<TensorView> out, std::byte* scratch,
                          const Pause& pause) const override;

 private:
  using Frame = std::vector<TensorView>;  // what the branch reads
  std::array<SubgraphPlan, 2> branches_;
  mutable FramePool<Frame> frames_;
};

}  // namespace troupe::gpu
