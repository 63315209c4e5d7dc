#include "gpu/engine/branch_kernel.hpp"

#include <algorithm>
#include <utility>

namespace troupe::gpu {

SubgraphPlan MakeSubgraphPlan(const proto::Subgraph& subgraph, Program program) {
  LayOut(program);
  SubgraphPlan made{std::make_unique<CpuPlan>(std::move(program)), {}};
  for (const proto::Subgraph::Capture& capture : subgraph.captures())
    made.captures.push_back(capture.input());
  return made;
}

Bytes BranchKernel::scratch() const {
  return std::max(branches_[0].plan->activation_bytes(), branches_[1].plan->activation_bytes());
}

absl::Status BranchKernel::Run(std::span<const TensorView> in, std::span<TensorView> out,
                               std::byte* scratch) const {
  return RunInParts(in, out, scratch, [] { return absl::OkStatus(); });
}

absl::Status BranchKernel::RunInParts(std::span<const TensorView> in, std::span<TensorView> out,
                                      std::byte* scratch, const Pause& pause) const {
  if (std::ranges::find(in[0].shape, 0) != in[0].shape.end())
    return absl::InvalidArgumentError("its condition has no element");
  const SubgraphPlan& branch = branches_[in[0].data[0] != std::byte{0} ? 0 : 1];
  const auto frame = frames_.Take([] { return std::make_unique<Frame>(); });
  frame->resize(branch.captures.size());
  for (std::size_t i = 0; i < branch.captures.size(); ++i) (*frame)[i] = in[branch.captures[i]];
  return branch.plan->RunSubgraph(*frame, out, scratch, pause);
}

}  // namespace troupe::gpu
