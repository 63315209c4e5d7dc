#include "node/scheduling/model_homes.hpp"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"

namespace troupe::node {

bool ModelHomes::FitsOn(ModelId model, std::uint32_t device) const {
  const auto& gpus = tables_.gpus.gpus();
  return std::any_of(gpus.begin(), gpus.end(), [&](const auto& gpu) {
    return gpu.second.device == device && tables_.CanEverFit(model, gpu.second);
  });
}

void ModelHomes::Bind(ModelId model) {
  if (!tables_.homes.binding.late()) {
    const ModelEntry& waiting = tables_.models[model];
    return tables_.homes.binding.BindAnyway(model, waiting.weights + waiting.activation, DevicesFor(model));
  }
  const std::uint32_t home = tables_.homes.Of(model);
  if (home != kNoGpu && FitsOn(model, home)) return;
  tables_.homes.devices.erase(model);
  std::map<std::uint32_t, Bytes> bound;
  for (const auto& [other, gpu] : tables_.homes.devices) bound[gpu] += tables_.models[other].weights;
  for (const auto& [index, gpu] : tables_.gpus.gpus()) {
    const std::uint32_t best = tables_.homes.Of(model);
    if (tables_.CanEverFit(model, gpu) && (best == kNoGpu || bound[gpu.device] < bound[best]))
      tables_.homes.devices[model] = gpu.device;
  }
}

FunctionBinding::Devices ModelHomes::DevicesFor(ModelId model) const {
  FunctionBinding::Devices devices;
  for (const auto& [index, gpu] : tables_.gpus.gpus())
    if (tables_.CanEverFit(model, gpu)) devices[gpu.device] = gpu.memory;
  return devices;
}

bool ModelHomes::KeepRoom(ModelId id, Time now, std::vector<Eviction>& evictions) {
  if (tables_.homes.binding.Asked(id, now)) {
    const std::vector<GpuIndex> holders = tables_.gpus.Holders(id);
    for (const GpuIndex gpu : holders) {
      const Resident& resident = *tables_.gpus.at(gpu).Find(id);
      if (!resident.Idle() || !resident.states.empty()) continue;
      reservations_.Evict(gpu, id);
      evictions.push_back({gpu, tables_.models.NameOf(id)});
    }
  }
  const ModelEntry& model = tables_.models[id];
  const auto used = [&](ModelId other) {
    return tables_.requests.WaitingFor(other) > 0 ||
           std::ranges::any_of(tables_.gpus.Holders(other),
                               [&](GpuIndex gpu) { return !tables_.gpus.at(gpu).Find(other)->Idle(); });
  };
  return tables_.homes.binding.Bind(id, model.weights + model.activation, DevicesFor(id), now, used);
}

absl::Status ModelHomes::NoRoomKept(const std::string& function, const ModelEntry& model) {
  return absl::ResourceExhaustedError(
      absl::StrCat("function '", function, "' needs ", FormatBytes(model.weights + model.activation),
                   " of a GPU for itself, and the models that are bound to this node's GPUs leave less; add "
                   "GPUs, or bind late (binding: late)"));
}

}  // namespace troupe::node
