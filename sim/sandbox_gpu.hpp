// SANDBOX GPU: the engine of one runtime of a GPU that several runtimes share (sim/sandbox.hpp): its copies
// go over the GPU's link, each on its own, and its runs over the GPU's compute units, which all that run
// share evenly. A run begins with the first of its weights and ends after the last of them. Weights and
// activations come from the runtime's pool.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "sim/cluster_file.hpp"
#include "sim/host_link.hpp"
#include "sim/profiled_gpu.hpp"
#include "sim/sandbox.hpp"
#include "sim/world.hpp"

namespace troupe::sim {

// The device memory of one runtime. Static (004: Table 2, cudaMemPool): freed memory is kept for the next
// allocation, and growing takes time. Elastic: as large as what is in use (5.2), and grows unnoticed.
class RuntimePool {
 public:
  explicit RuntimePool(bool elastic) : elastic_(elastic) {}
  [[nodiscard]] bool Take(Bytes bytes);  // true: it had to grow
  void Give(Bytes bytes);
  [[nodiscard]] Bytes held() const { return elastic_ ? used_ : most_; }

 private:
  const bool elastic_;
  Bytes used_{};
  Bytes most_{};
};

// InvalidArgument: a model that no runtime of a GPU has room for.
[[nodiscard]] absl::Status CheckFits(const Sandbox& sandbox, const ClusterSpec& cluster);
// What a run takes of its runtime's pool.
[[nodiscard]] Bytes RunMemory(const Sandbox& sandbox, const ModelSpec& model);
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
  Bytes held{};        // by the pools of all runtimes
};

// `mechanism`'s mode is passed over. `models`, `gpu` and `use` are shared with others and outlive it.
// `run_memory`: what a run of a model takes of the pool.
std::unique_ptr<actors::FakeGpu> MakeSandboxGpu(const Sandbox& sandbox, GpuMechanism mechanism,
                                                std::shared_ptr<const ModelCatalogue> models,
                                                std::function<Bytes(const std::string& digest)> run_memory,
                                                std::shared_ptr<SharedGpu> gpu, std::shared_ptr<GpuUse> use,
                                                actors::FakeGpu::Timer timer);

}  // namespace troupe::sim
