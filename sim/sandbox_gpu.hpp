// SANDBOX GPU: the engine of one runtime of a GPU that several runtimes share (sim/sandbox.hpp): its copies
// go over the GPU's link, each on its own, and its runs over the GPU's compute units, which all that run
// share evenly. A run begins with the first of its weights and ends after the last of them.
#pragma once

#include <memory>

#include "sim/host_link.hpp"
#include "sim/profiled_gpu.hpp"
#include "sim/sandbox.hpp"
#include "sim/world.hpp"

namespace troupe::sim {

// How much of a GPU each runtime has.
[[nodiscard]] Bytes RuntimeMemory(const Sandbox& sandbox, Bytes gpu);
// Sets a node up with the sandbox's runtimes; its GPUs have `gpu` each.
void PutInSandbox(const Sandbox& sandbox, Bytes gpu, World::NodePlan& plan);

// What the runtimes of one GPU have in common.
struct SharedGpu {
  explicit SharedGpu(bool link_in_turns)
      : link(link_in_turns ? gpu::LinkSharing::kExclusive : gpu::LinkSharing::kShared) {}
  HostLink link;
  HostLink compute{};  // run times instead of transfers: the same arithmetic
};

// `mechanism`'s mode is passed over. `models`, `gpu` and `use` are shared with others and outlive it.
std::unique_ptr<actors::FakeGpu> MakeSandboxGpu(const Sandbox& sandbox, GpuMechanism mechanism,
                                                std::shared_ptr<const ModelCatalogue> models,
                                                std::shared_ptr<SharedGpu> gpu, std::shared_ptr<GpuUse> use,
                                                actors::FakeGpu::Timer timer);

}  // namespace troupe::sim
