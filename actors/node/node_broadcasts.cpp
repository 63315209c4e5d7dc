// The node controller: models that several GPUs take at once. A dispatch that is to get its model from a GPU
// which is loading it waits a moment, so that others can join; then that GPU's worker and theirs hear of the
// broadcast. What a worker does not get that way it takes from the host, so here a broadcast cannot fail.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/node/node_controller_actor.hpp"

namespace troupe::actors {

void NodeController::AwaitBroadcast(const node::Dispatch& dispatch, std::uint64_t serial) {
  gathered_.push_back({dispatch, serial, {}});
  if (std::exchange(broadcasts_armed_, true)) return;
  After(this, options_.broadcast_gather, MakeTick(kBroadcasts));
}

bool NodeController::BehindBroadcast(const node::Dispatch& dispatch, const std::function<void()>& then) {
  for (auto& gathered : gathered_) {
    if (gathered.dispatch.gpu != dispatch.gpu || gathered.dispatch.model != dispatch.model) continue;
    gathered.behind.push_back(then);
    return true;
  }
  return false;
}

// Whose worker was lost meanwhile has been planned anew.
bool NodeController::Joins(const Gathered& waiting, const node::Broadcasts::Order& broadcast) {
  return waiting.dispatch.peer == broadcast.sender &&
         std::ranges::find(broadcast.receivers, waiting.dispatch.gpu) != broadcast.receivers.end() &&
         Current(waiting.dispatch.request, waiting.serial) != nullptr;
}

void NodeController::SendBroadcasts() {
  broadcasts_armed_ = false;
  const auto gathered = std::exchange(gathered_, {});
  for (const auto& broadcast : scheduler_.TakeBroadcasts()) {
    const auto order = SendBroadcast(broadcast, gathered);
    for (const auto& waiting : gathered) {
      if (!Joins(waiting, broadcast)) continue;
      if (models_.Find(waiting.dispatch.model) != nullptr)
        OrderSwapIn(waiting.dispatch, waiting.serial, nullptr, 0, order ? &*order : nullptr);
      OrderRun(waiting.dispatch, waiting.serial);
    }
  }
  for (const auto& waiting : gathered)
    for (const auto& then : waiting.behind) then();
}

// The sender's part of it; what the receivers are told. Nothing when it cannot be: they go to the host.
std::optional<proto::Broadcast> NodeController::SendBroadcast(const node::Broadcasts::Order& broadcast,
                                                              const std::vector<Gathered>& gathered) {
  const auto& socket = gpus_[broadcast.sender].last.worker().broadcast_socket();
  if (!Up(broadcast.sender) || socket.empty()) return std::nullopt;
  proto::Broadcast order;
  order.set_meeting(absl::StrCat(options_.name, "-", Now(this).time_since_epoch().count(), "-", ++meetings_));
  order.set_socket(socket);
  order.add_gpus(DeviceOf(broadcast.sender));
  const node::Dispatch* first = nullptr;
  for (const auto& waiting : gathered) {
    if (!Joins(waiting, broadcast)) continue;
    order.add_gpus(DeviceOf(waiting.dispatch.gpu));
    first = &waiting.dispatch;
  }
  if (first == nullptr || models_.Find(first->model) == nullptr) return std::nullopt;
  const auto& copy = models_.Find(first->model)->copy;
  proto::WorkerOrder swap;
  *swap.mutable_swap_in()->mutable_model() = copy;
  swap.mutable_swap_in()->set_address(addresses_.Of(first->model, Bytes(copy.weights().length())));
  *swap.mutable_swap_in()->mutable_broadcast() = order;
  // The model's own swap-in tells how that went.
  OrderFor(first->model, broadcast.sender, std::move(swap), [](const proto::WorkerOutcome&) {});
  return order;
}

}  // namespace troupe::actors
