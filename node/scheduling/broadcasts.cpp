#include "node/scheduling/broadcasts.hpp"

#include <algorithm>
#include <array>

#include "base/check.hpp"

namespace troupe::node {

std::span<const PolicyEntry<BroadcastRule>> BroadcastRules() {
  static constexpr std::array<PolicyEntry<BroadcastRule>, 2> kRules = {
      {{"off", "each GPU takes its models itself", BroadcastRule::kOff},
       {"burst", "what one GPU loads from the host comes to others from that one", BroadcastRule::kBurst}}};
  return kRules;
}

absl::StatusOr<BroadcastRule> FindBroadcastRule(std::string_view name) {
  return FindPolicy<BroadcastRule>("broadcast", name, BroadcastRules());
}

const Broadcasts::Broadcast* Broadcasts::Of(std::uint32_t device) const {
  for (const Broadcast& broadcast : all_) {
    if (broadcast.sender.device == device) return &broadcast;
    for (const Member& receiver : broadcast.receivers)
      if (receiver.device == device) return &broadcast;
  }
  return nullptr;
}

bool Broadcasts::MayJoin(const Member& sender, const Member& receiver, ModelId model) const {
  if (sender.device == receiver.device || Of(receiver.device) != nullptr) return false;
  const Broadcast* const its = Of(sender.device);
  if (its == nullptr) return true;
  return !its->sent && its->sender.gpu == sender.gpu && its->model == model &&
         its->receivers.size() + 1 < kMembers;
}

void Broadcasts::Join(const Member& sender, const Member& receiver, ModelId model) {
  TROUPE_CHECK(MayJoin(sender, receiver, model), "a GPU takes part in two broadcasts");
  for (Broadcast& broadcast : all_) {
    if (broadcast.sender.gpu == sender.gpu) return broadcast.receivers.push_back(receiver);
  }
  all_.push_back({model, sender, {receiver}});
}

std::vector<Broadcasts::Order> Broadcasts::Send() {
  std::vector<Order> orders;
  for (Broadcast& broadcast : all_) {
    if (broadcast.sent) continue;
    broadcast.sent = true;
    orders.push_back({broadcast.model, broadcast.sender.gpu, {}});
    for (const Member& receiver : broadcast.receivers) orders.back().receivers.push_back(receiver.gpu);
  }
  return orders;
}

void Broadcasts::DropEmpty() {
  std::erase_if(all_, [](const Broadcast& broadcast) { return broadcast.receivers.empty(); });
}

void Broadcasts::End(GpuIndex receiver, ModelId model) {
  for (Broadcast& broadcast : all_) {
    if (broadcast.model != model) continue;
    std::erase_if(broadcast.receivers, [&](const Member& member) { return member.gpu == receiver; });
  }
  DropEmpty();
}

void Broadcasts::Lose(GpuIndex gpu) {
  for (Broadcast& broadcast : all_) {
    std::erase_if(broadcast.receivers, [&](const Member& member) { return member.gpu == gpu; });
  }
  DropEmpty();
}

}  // namespace troupe::node
