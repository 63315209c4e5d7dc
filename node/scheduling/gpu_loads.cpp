#include "node/scheduling/gpu_loads.hpp"

#include "base/check.hpp"

namespace troupe::node {

std::optional<GpuPlace> GpuLoads::PlaceOf(const Gpu& gpu) {
  if (gpu.worker != WorkerState::kReady) return std::nullopt;
  return GpuPlace::Of(gpu.index, gpu.taken / kWhole, gpu.Free());
}

void GpuLoads::Add(GpuIndex index, std::uint32_t device) {
  if (taken_.size() <= device) taken_.resize(device + 1);
  if (is_changed_.size() <= index) is_changed_.resize(index + 1);
}

const PlaceOrder& GpuLoads::Ordered(absl::Span<const Gpu* const> gpus) const {
  for (const GpuIndex index : changed_) {
    is_changed_[index] = false;
    ready_.Set(index, PlaceOf(*gpus[index]));
  }
  changed_.clear();
  return ready_;
}

void GpuLoads::Set(Gpu& gpu, WorkerState worker, std::uint32_t in_flight, std::uint32_t taken) {
  if (gpu.worker == WorkerState::kReady) --ready_with_[gpu.taken / kWhole], --ready_count_;
  taken_[gpu.device] += taken - gpu.taken;
  gpu.worker = worker;
  gpu.in_flight = in_flight;
  gpu.taken = taken;
  const std::uint32_t whole = taken / kWhole;
  if (ready_with_.size() <= whole) ready_with_.resize(whole + 1);
  if (worker == WorkerState::kReady) ++ready_with_[whole], ++ready_count_;
}

void GpuLoads::Check(absl::Span<const Gpu* const> gpus) const {
  const PlaceOrder& places = Ordered(gpus);
  std::vector<std::uint32_t> taken(taken_.size());
  std::size_t ready = 0;
  for (const Gpu* gpu : gpus) {
    if (gpu == nullptr) continue;
    taken[gpu->device] += gpu->taken;
    const std::optional<GpuPlace> place = PlaceOf(*gpu);
    TROUPE_CHECK(places.Find(gpu->index) == place, "a GPU is not where its load says");
    ready += place ? 1 : 0;
  }
  TROUPE_CHECK(taken == taken_, "the places of a device are counted wrong");
  TROUPE_CHECK(ready == places.size() && ready == ready_count_, "a GPU stands in two places");
  std::uint32_t least = ~std::uint32_t{0};
  places.InOrder([&](const GpuPlace& place) {
    least = place.in_flight();
    return false;
  });
  TROUPE_CHECK(least == Least(), "the least busy GPU is another one");
}

}  // namespace troupe::node
