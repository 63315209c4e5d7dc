#include "node/scheduling/gpu_holds.hpp"

#include <tuple>

namespace troupe::node {

bool GpuHolds::MayHold(const RequestEntry& entry, const Gpu& gpu) const {
  if (gpu.worker != WorkerState::kReady || tables_.rights.held.HolderOf(gpu.index) != nullptr) return false;
  if (!tables_.CanEverFit(entry.model, gpu) || !tables_.StateAllows(entry, gpu)) return false;
  if (tables_.rules.policies.gpu.early_binding && gpu.device != tables_.homes.Of(entry.model)) return false;
  // Where its key has a runtime it waits for that one.
  return tables_.Serves(entry, gpu) ||
         !Served(tables_.gpus.gpus(), tables_.models[entry.model].key, gpu.device);
}

void GpuHolds::HoldFor(RequestEntry& entry) {
  if (!tables_.OneForAll() && Coming(tables_.gpus.gpus(), tables_.models[entry.model].key)) return;
  const Gpu* best = nullptr;
  const auto rank = [&](const Gpu& gpu) {
    return std::tuple(!tables_.Serves(entry, gpu), gpu.Find(entry.model) == nullptr, gpu.in_flight,
                      gpu.work.whole(), gpu.index);
  };
  const auto consider = [&](const Gpu& gpu) {
    if (!MayHold(entry, gpu)) return false;
    if (best == nullptr || rank(gpu) < rank(*best)) best = &gpu;
    return true;
  };
  if (tables_.LooksAtAll(tables_.models[entry.model])) {
    for (const auto& [index, gpu] : tables_.gpus.gpus()) consider(gpu);
  } else {
    for (const GpuIndex holder : tables_.gpus.Holders(entry.model)) consider(tables_.gpus.at(holder));
    std::size_t some = best == nullptr ? kSomeGpus : 0;
    tables_.gpus.ready().InOrder([&](const GpuPlace& place) {
      if (some > 0) some -= consider(tables_.gpus.at(place.gpu)) ? 1 : 0;
      return some > 0;
    });
  }
  if (best == nullptr) return;
  tables_.rights.held.Hold(entry, best->index);
}

void GpuHolds::LeaveUseless(RequestEntry& entry) {
  if (entry.hold == kNoGpu) return;
  const Gpu& gpu = tables_.gpus.at(entry.hold);
  const bool fits = tables_.CanEverFit(entry.model, gpu) && tables_.StateAllows(entry, gpu);
  const bool has_other =
      !tables_.Serves(entry, gpu) && Served(tables_.gpus.gpus(), tables_.models[entry.model].key, gpu.device);
  const bool away = tables_.rules.policies.gpu.early_binding && gpu.device != tables_.homes.Of(entry.model);
  if (!fits || has_other || away) Release(entry);
}

void GpuHolds::Release(RequestEntry& entry) {
  const GpuIndex gpu = tables_.rights.held.Release(entry);
  if (gpu != kNoGpu) waiting_.Wake(gpu);
}

}  // namespace troupe::node
