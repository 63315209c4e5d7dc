#include "gpu/worker/worker_device.hpp"

#include <cstdio>
#include <string>

namespace troupe::gpu {

std::unique_ptr<ArenaPins> PinsOn(Device& device, const SwapOptions& swap) {
  const absl::StatusOr<SwapPolicy> policy = FindSwapPolicy(swap.swap);
  if (!device.info().registers_pages || !policy.ok() || !policy->registered) return nullptr;
  ArenaPins::Calls calls;
  calls.add = [&device](std::span<const std::byte> bytes) { return device.RegisterHost(bytes); };
  calls.remove = [&device](std::span<const std::byte> bytes) { device.UnregisterHost(bytes); };
  calls.refused = [](ArenaPins::Owner owner, const absl::Status& why) {
    std::fprintf(
        stderr,
        "troupe-gpu-worker: large %s by slower copies, through the driver's own memory, because their "
        "arenas cannot be registered with the GPU: %s\n",
        owner == ArenaPins::Owner::kWorker ? "outputs leave" : "inputs come",
        std::string(why.message()).c_str());
  };
  return std::make_unique<ArenaPins>(std::move(calls), ArenaPins::Bounds());
}

}  // namespace troupe::gpu
