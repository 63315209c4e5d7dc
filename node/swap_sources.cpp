// Where a model's weights may come from, and what the ways there are busy with.
#include <algorithm>

#include "node/swap_scheduler.hpp"

namespace troupe::node {

// The fastest link from a GPU that has the whole model, if this GPU's worker can use it (see StateAllows).
void SwapScheduler::FindPeer(const Look& look, const Gpu& gpu, GpuOption& option) const {
  if (!gpu.peer_copies || !topology_.HasLinks() || look.entry.host_only) return;
  if (StateNeed(look, nullptr) > Bytes()) return;
  BytesPerSecond fastest;
  for (const GpuIndex holder : gpus_.Holders(look.entry.model)) {
    const auto speed = topology_.PeerLink(gpus_.at(holder).device, gpu.device);
    if (!speed || *speed <= fastest) continue;
    const Resident& there = *gpus_.at(holder).Find(look.entry.model);
    if (there.state == ResidentState::kLoading || there.missing) continue;
    fastest = *speed;
    option.peer = holder;
  }
  if (option.peer != kNoGpu) option.peer_load = TransferTime(look.model.weights, fastest);
}

// A GPU that is loading the model from the host and can send it on to this one; of several the one with the
// fastest link. kNoGpu: none, it comes from the host.
GpuIndex SwapScheduler::SenderFor(const Look& look, const Gpu& gpu) const {
  if (limits_.broadcast == BroadcastRule::kOff || look.entry.host_only || !gpu.broadcasts) return kNoGpu;
  if (StateNeed(look, nullptr) > Bytes()) return kNoGpu;
  GpuIndex sender = kNoGpu;
  BytesPerSecond fastest;
  for (const GpuIndex holder : gpus_.Holders(look.entry.model)) {
    const Gpu& from = gpus_.at(holder);
    const Resident* const there = from.Find(look.entry.model);
    if (!from.broadcasts || there->state != ResidentState::kLoading || there->source != kNoGpu) continue;
    const auto speed = topology_.PeerLink(from.device, gpu.device);
    if (!speed || *speed <= fastest) continue;
    if (!broadcasts_.MayJoin({holder, from.device}, {gpu.index, gpu.device}, look.entry.model)) continue;
    fastest = *speed;
    sender = holder;
  }
  return sender;
}

// From the host: one for each switch that several share, and one for each other GPU.
std::uint32_t SwapScheduler::LinkCount() const {
  std::size_t links = gpus_.gpus().size();
  for (const auto& shared : topology_.Switches()) links -= std::min(links, shared.size() - 1);
  return static_cast<std::uint32_t>(std::max<std::size_t>(links, 1));
}

SwitchLoad SwapScheduler::LoadTo(const Gpu& gpu) const {
  SwitchLoad load = SwitchLoad::kNone;
  for (const ModelId model : gpu.host_loads) {
    if (costs_.Heavy(models_[model].cost, gpu.Find(model)->bytes)) return SwitchLoad::kHeavy;
    load = SwitchLoad::kLight;
  }
  return load;
}

SwitchLoad SwapScheduler::LoadOfSwitch(const Gpu& gpu) const {
  if (!limits_.isolated && topology_.empty()) return LoadTo(gpu);
  SwitchLoad load = SwitchLoad::kNone;
  for (const auto& [index, other] : gpus_.gpus()) {
    if (other.device == gpu.device || topology_.ShareSwitch(other.device, gpu.device))
      load = std::max(load, LoadTo(other));
  }
  return load;
}

// What comes from the host to the other GPUs behind its switch: the longest of them.
Duration SwapScheduler::LoadsBeside(const Gpu& gpu, Time now) const {
  Duration most{};
  if (topology_.empty()) return most;
  for (const auto& [index, other] : gpus_.gpus()) {
    if (other.device != gpu.device && topology_.ShareSwitch(other.device, gpu.device))
      most = std::max(most, other.bringing.Left(now));
  }
  return most;
}

}  // namespace troupe::node
