// PROFILED GPU: the engine of a simulated worker: loads and runs take what was measured of each model. It
// computes nothing.
//
//   atomic      a load occupies the whole GPU; in the order of arrival (LALB, 003)
//   overlapped  a load goes on while another model runs; a run begins when its own model has come
//   pipelined   as that, and a run begins with the first of its weights (Torpor, 002, 4.2)
//   (runtimes)  each model in a process of its own: a load is its start, any number of them go on beside
//               each other and beneath the others' runs; of the setup, not of a cluster file
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "actors/seams/fake_gpu.hpp"
#include "base/units.hpp"
#include "sim/host_link.hpp"

namespace troupe::sim {

enum class LoadMode { kAtomic, kOverlapped, kPipelined, kRuntimes };
[[nodiscard]] absl::StatusOr<LoadMode> ParseLoadMode(const std::string& name);

struct ModelTimes {
  Duration run{};      // all weights on the GPU
  Duration load{};     // from the host; zero: by the link
  Duration swapped{};  // load and run together on an idle link, pipelined; zero: the longer of the two
};
// By the key under which workers know a model.
using ModelCatalogue = std::map<std::string, ModelTimes>;

// What allocating device memory takes of a GPU, which does nothing else meanwhile: for the weights of a load
// and for a run.
struct AllocationTimes {
  Duration load{};
  Duration run{};
};
// Of a policy of gpu/memory/memory_policy.hpp; none, where it never asks the device.
[[nodiscard]] AllocationTimes AllocationTimesOf(std::string_view memory_policy);

// Which of the loads that wait for a GPU's copy engine, or of the runs that could compute there, is next.
enum class Turns { kArrival, kDeadline };

struct GpuMechanism {
  LoadMode mode = LoadMode::kPipelined;
  BytesPerSecond link{12e9};
  // Of the links from other GPUs to this one; zero: none.
  std::function<BytesPerSecond(std::uint32_t from)> peer_link{};
  double speed = 1;  // divides the times of runs
  AllocationTimes allocation{};
  Turns loads = Turns::kArrival;
  Turns runs = Turns::kArrival;
  // Told of each load as it is ordered.
  std::function<void(const std::string& digest, bool from_peer)> on_bring{};
};
// What a GPU did.
struct GpuUse {
  Duration computing{};
  Duration loading{};  // with at least one model on its way
};

// `models`, `link` and `use` are shared with others and outlive it.
std::unique_ptr<actors::FakeGpu> MakeProfiledGpu(GpuMechanism mechanism,
                                                 std::shared_ptr<const ModelCatalogue> models,
                                                 std::shared_ptr<HostLink> link, std::shared_ptr<GpuUse> use,
                                                 actors::FakeGpu::Timer timer);

}  // namespace troupe::sim
