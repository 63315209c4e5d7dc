// Where a model's weights may come from, and what the ways there are busy with.
#include <algorithm>

#include "node/scheduling/gpu_chooser.hpp"

namespace troupe::node {

// The fastest link from a GPU that has the whole model, if this GPU's worker can use it (see
// SchedulerTables::StateAllows).
void GpuChooser::FindPeer(const RequestLook& look, const Gpu& gpu, GpuOption& option) const {
  if (!gpu.peer_copies || !tables_.rules.topology.HasLinks() || look.entry.host_only) return;
  if (tables_.StateNeed(look, nullptr) > Bytes()) return;
  BytesPerSecond fastest;
  for (const GpuIndex holder : tables_.gpus.Holders(look.entry.model)) {
    const auto speed = tables_.rules.topology.PeerLink(tables_.gpus.at(holder).device, gpu.device);
    if (!speed || *speed <= fastest) continue;
    const Resident& there = *tables_.gpus.at(holder).Find(look.entry.model);
    if (there.state == ResidentState::kLoading || there.missing) continue;
    fastest = *speed;
    option.peer = holder;
  }
  if (option.peer != kNoGpu) option.peer_load = TransferTime(look.model.weights, fastest);
}

GpuIndex GpuChooser::SenderFor(const RequestLook& look, const Gpu& gpu) const {
  if (tables_.rules.limits.broadcast == BroadcastRule::kOff || look.entry.host_only || !gpu.broadcasts)
    return kNoGpu;
  if (tables_.StateNeed(look, nullptr) > Bytes()) return kNoGpu;
  GpuIndex sender = kNoGpu;
  BytesPerSecond fastest;
  for (const GpuIndex holder : tables_.gpus.Holders(look.entry.model)) {
    const Gpu& from = tables_.gpus.at(holder);
    const Resident* const there = from.Find(look.entry.model);
    if (!from.broadcasts || there->state != ResidentState::kLoading || there->source != kNoGpu) continue;
    const auto speed = tables_.rules.topology.PeerLink(from.device, gpu.device);
    if (!speed || *speed <= fastest) continue;
    if (!tables_.broadcasts.MayJoin({holder, from.device}, {gpu.index, gpu.device}, look.entry.model))
      continue;
    fastest = *speed;
    sender = holder;
  }
  return sender;
}

SwitchLoad GpuChooser::LoadTo(const Gpu& gpu) const {
  SwitchLoad load = SwitchLoad::kNone;
  for (const ModelId model : gpu.host_loads) {
    if (tables_.times.costs.Heavy(tables_.models[model].cost, gpu.Find(model)->bytes, gpu.kind))
      return SwitchLoad::kHeavy;
    load = SwitchLoad::kLight;
  }
  return load;
}

SwitchLoad GpuChooser::LoadOfSwitch(const Gpu& gpu) const {
  if (!tables_.rules.limits.isolated && tables_.rules.topology.empty()) return LoadTo(gpu);
  SwitchLoad load = SwitchLoad::kNone;
  for (const auto& [index, other] : tables_.gpus.gpus()) {
    if (other.device == gpu.device || tables_.rules.topology.ShareSwitch(other.device, gpu.device))
      load = std::max(load, LoadTo(other));
  }
  return load;
}

// What comes from the host to the other GPUs behind its switch: the longest of them.
Duration GpuChooser::LoadsBeside(const Gpu& gpu, Time now) const {
  Duration most{};
  if (tables_.rules.topology.empty()) return most;
  for (const auto& [index, other] : tables_.gpus.gpus()) {
    if (other.device != gpu.device && tables_.rules.topology.ShareSwitch(other.device, gpu.device))
      most = std::max(most, other.bringing.Left(now));
  }
  return most;
}

}  // namespace troupe::node
