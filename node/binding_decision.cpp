// The binding half of the swap scheduler: which model has which GPU, for as long as the `binding` slot says.
#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "node/swap_scheduler.hpp"

namespace troupe::node {

std::uint32_t SwapScheduler::Home(ModelId model) const {
  if (!binding_.late()) return binding_.Home(model);
  if (homes_.empty()) return kNoGpu;
  const auto home = homes_.find(model);
  return home == homes_.end() ? kNoGpu : home->second;
}

bool SwapScheduler::FitsOn(ModelId model, std::uint32_t device) const {
  const auto& gpus = gpus_.gpus();
  return std::any_of(gpus.begin(), gpus.end(), [&](const auto& gpu) {
    return gpu.second.device == device && CanEverFit(model, gpu.second);
  });
}

// Gives a model its GPU, the one with the fewest bytes of others; again when that GPU can never hold it.
void SwapScheduler::BindHome(ModelId model) {
  if (!binding_.late()) {
    const Model& waiting = models_[model];
    return binding_.BindAnyway(model, waiting.weights + waiting.activation, DevicesFor(model));
  }
  const std::uint32_t home = Home(model);
  if (home != kNoGpu && FitsOn(model, home)) return;
  homes_.erase(model);
  std::map<std::uint32_t, Bytes> bound;
  for (const auto& [other, gpu] : homes_) bound[gpu] += models_[other].weights;
  for (const auto& [index, gpu] : gpus_.gpus()) {
    const std::uint32_t best = Home(model);
    if (CanEverFit(model, gpu) && (best == kNoGpu || bound[gpu.device] < bound[best]))
      homes_[model] = gpu.device;
  }
}

FunctionBinding::Devices SwapScheduler::DevicesFor(ModelId model) const {
  FunctionBinding::Devices devices;
  for (const auto& [index, gpu] : gpus_.gpus())
    if (CanEverFit(model, gpu)) devices[gpu.device] = gpu.memory;
  return devices;
}

// A request for the model came: false when it has no GPU, and none has room for it.
bool SwapScheduler::KeepRoom(ModelId id, Time now, std::vector<Eviction>& evictions) {
  if (binding_.Asked(id, now)) {
    const std::vector<GpuIndex> holders = gpus_.Holders(id);
    for (const GpuIndex gpu : holders) {
      const Resident& resident = *gpus_.at(gpu).Find(id);
      if (!resident.Idle() || !resident.states.empty()) continue;
      Evict(gpu, id);
      evictions.push_back({gpu, NameOf(id)});
    }
  }
  const Model& model = models_[id];
  const auto used = [&](ModelId other) {
    return WaitingFor(other) > 0 || std::ranges::any_of(gpus_.Holders(other), [&](GpuIndex gpu) {
             return !gpus_.at(gpu).Find(other)->Idle();
           });
  };
  return binding_.Bind(id, model.weights + model.activation, DevicesFor(id), now, used);
}

absl::Status SwapScheduler::NoRoomKept(const std::string& function, const Model& model) const {
  return absl::ResourceExhaustedError(
      absl::StrCat("function '", function, "' needs ", FormatBytes(model.weights + model.activation),
                   " of a GPU for itself, and the models that are bound to this node's GPUs leave less; add "
                   "GPUs, or bind late (--binding late)"));
}

}  // namespace troupe::node
