// GPUs that are kept for one request each: nothing else starts there until it goes, or gives the GPU up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "node/scheduling/gpu.hpp"
#include "node/scheduling/scheduler_entries.hpp"

namespace troupe::node {

class HeldGpus {
 public:
  void Add(GpuIndex gpu, std::uint32_t device) {
    const std::size_t gpus = std::max<std::size_t>(holders_.size(), std::size_t{gpu} + 1);
    holders_.resize(gpus);
    devices_.resize(gpus);
    devices_[gpu] = device;
    held_.resize(std::max<std::size_t>(held_.size(), std::size_t{device} + 1));
  }

  // The request for which the GPU is kept; null: none.
  [[nodiscard]] RequestEntry* HolderOf(GpuIndex gpu) const { return holders_[gpu]; }
  [[nodiscard]] bool HeldByOther(const RequestEntry& entry, GpuIndex gpu) const {
    return holders_[gpu] != nullptr && holders_[gpu] != &entry;
  }
  // The request that waits for this model in front of a GPU that is kept for it.
  [[nodiscard]] std::vector<RequestEntry*> HoldersOf(ModelId model) const {
    std::vector<RequestEntry*> holders;
    for (RequestEntry* const holder : holders_)
      if (holder != nullptr && holder->model == model) holders.push_back(holder);
    return holders;
  }
  // Places of the device that are kept for others, with its other runtimes: without them those could drain,
  // and would never be begun on.
  [[nodiscard]] std::uint32_t KeptPlaces(const RequestEntry& entry, const Gpu& gpu) const {
    std::uint32_t kept = held_[gpu.device];
    if (kept == 0) return 0;
    if (holders_[gpu.index] != nullptr) --kept;
    const bool own = entry.hold != kNoGpu && entry.hold != gpu.index;
    return own && devices_[entry.hold] == gpu.device ? kept - 1 : kept;
  }

  void Hold(RequestEntry& entry, GpuIndex gpu) {
    holders_[gpu] = &entry;
    ++held_[devices_[gpu]];
    entry.hold = gpu;
  }
  // The GPU that is free now; kNoGpu: none was kept for it.
  GpuIndex Release(RequestEntry& entry) {
    const GpuIndex gpu = std::exchange(entry.hold, kNoGpu);
    if (gpu == kNoGpu) return kNoGpu;
    holders_[gpu] = nullptr;
    --held_[devices_[gpu]];
    return gpu;
  }

  void Check() const {
    std::vector<std::uint32_t> held(held_.size());
    for (GpuIndex gpu = 0; gpu < holders_.size(); ++gpu) {
      if (holders_[gpu] == nullptr) continue;
      ++held[devices_[gpu]];
      TROUPE_CHECK(holders_[gpu]->hold == gpu && holders_[gpu]->gpu == kNoGpu,
                   "a GPU is held for no request");
    }
    TROUPE_CHECK(held == held_, "the GPUs that are kept are counted wrong");
  }

 private:
  std::vector<RequestEntry*> holders_;  // by GPU
  std::vector<std::uint32_t> devices_;  // by GPU: which one it is on
  std::vector<std::uint32_t> held_;     // by device: its GPUs that are kept
};

}  // namespace troupe::node
