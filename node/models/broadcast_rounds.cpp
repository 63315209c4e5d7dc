#include "node/models/broadcast_rounds.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "node/parts.hpp"

namespace troupe::node {

void BroadcastRounds::Gather(const HeldStart& start) {
  gathered_.push_back({start, {}});
  if (std::exchange(armed_, true)) return;
  parts_.out.WakeAfter(Timer::kBroadcasts, parts_.settings.broadcast_gather);
}

bool BroadcastRounds::Await(const HeldStart& start) {
  for (auto& gathered : gathered_) {
    const auto& there = gathered.start.dispatch;
    if (there.gpu != start.dispatch.gpu || there.model != start.dispatch.model) continue;
    gathered.behind.push_back(start);
    return true;
  }
  return false;
}

// A dispatch whose worker was lost meanwhile has been planned anew.
bool BroadcastRounds::Joins(const Gathered& waiting, const Broadcasts::Order& broadcast) const {
  const auto& dispatch = waiting.start.dispatch;
  return dispatch.peer == broadcast.sender &&
         std::ranges::find(broadcast.receivers, dispatch.gpu) != broadcast.receivers.end() &&
         parts_.requests.Current(dispatch.request, waiting.start.serial) != nullptr;
}

void BroadcastRounds::OnTimer() {
  armed_ = false;
  const auto gathered = std::exchange(gathered_, {});
  for (const auto& broadcast : parts_.scheduler.CloseBroadcasts()) {
    const auto order = Send(broadcast, gathered);
    for (const auto& waiting : gathered) {
      if (!Joins(waiting, broadcast)) continue;
      if (parts_.models.Find(waiting.start.dispatch.model) != nullptr)
        parts_.swaps.Order(waiting.start, {.broadcast = order ? &*order : nullptr});
      parts_.dispatches.OrderRun(waiting.start);
    }
  }
  for (const auto& waiting : gathered)
    for (const auto& start : waiting.behind) parts_.dispatches.Go(start);
}

// The sender's part of it; what the receivers are told. Nothing when it cannot be: they go to the host.
std::optional<proto::Broadcast> BroadcastRounds::Send(const Broadcasts::Order& broadcast,
                                                      const std::vector<Gathered>& gathered) {
  const auto& socket = parts_.runtimes.Last(broadcast.sender).worker().broadcast_socket();
  if (!parts_.runtimes.Up(broadcast.sender) || socket.empty()) return std::nullopt;
  proto::Broadcast order;
  order.set_meeting(
      absl::StrCat(parts_.settings.name, "-", parts_.out.now().time_since_epoch().count(), "-", ++meetings_));
  order.set_socket(socket);
  order.add_gpus(parts_.settings.DeviceOf(broadcast.sender));
  const Dispatch* first = nullptr;
  for (const auto& waiting : gathered) {
    if (!Joins(waiting, broadcast)) continue;
    order.add_gpus(parts_.settings.DeviceOf(waiting.start.dispatch.gpu));
    first = &waiting.start.dispatch;
  }
  if (first == nullptr || parts_.models.Find(first->model) == nullptr) return std::nullopt;
  proto::WorkerOrder swap;
  *swap.mutable_swap_in()->mutable_model() = parts_.models.Find(first->model)->copy;
  swap.mutable_swap_in()->set_address(parts_.models.AddressOf(first->model));
  *swap.mutable_swap_in()->mutable_broadcast() = order;
  // The model's own swap-in tells how that went.
  parts_.orders.GiveFor(first->model, broadcast.sender, std::move(swap), NoPurpose{});
  return order;
}

}  // namespace troupe::node
