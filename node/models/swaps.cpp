#include "node/models/swaps.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/event_log.hpp"
#include "node/parts.hpp"
#include "node/runtimes/worker_orders.hpp"

namespace troupe::node {

void Swaps::Order(const HeldStart& start, const SwapWay& way) {
  const auto& dispatch = start.dispatch;
  const auto* request = parts_.requests.Find(dispatch.request);
  const auto source = request->was;
  const auto& copy = parts_.models.Find(dispatch.model)->copy;
  auto order = SwapInOrderFor(dispatch, copy, parts_.out.now());
  auto& swap = *order.mutable_swap_in();
  swap.set_address(parts_.models.AddressOf(dispatch.model));
  swap.set_meter(parts_.metering.PayerOf(*request));
  ImagePtr image;
  if (dispatch.bring_state) image = parts_.states.AddTo(dispatch.state, swap);
  if (way.pinned != nullptr) {
    *swap.mutable_pinned() = way.pinned->memory();
    swap.set_from_gpu(parts_.settings.DeviceOf(dispatch.peer));  // links lie between devices, not runtimes
  }
  if (way.broadcast != nullptr) *swap.mutable_broadcast() = *way.broadcast;
  parts_.orders.GiveFor(
      dispatch.model, dispatch.gpu, std::move(order),
      SwapInOrdered{start, parts_.runtimes.Life(dispatch.gpu), source, way.copy, std::move(image)});
}

void Swaps::Prefetch(const Dispatch& dispatch) {
  NoteVictims(dispatch);
  log_.Dispatched(ModelWas::kAhead);
  for (const auto& victim : dispatch.victims) parts_.evictions.Order(dispatch.gpu, victim);
  parts_.evictions.Writing(dispatch.gpu) ? parts_.evictions.PrefetchBehind(dispatch) : Bring(dispatch);
}

void Swaps::Bring(const Dispatch& dispatch) {
  const auto* model = parts_.models.Find(dispatch.model);
  if (model == nullptr)
    return parts_.decisions.CarryOut(
        NotBrought(dispatch, absl::NotFoundError("the model was taken off this node while it waited")));
  auto order = SwapInOrderFor(dispatch, model->copy, parts_.out.now());
  order.mutable_swap_in()->set_address(parts_.models.AddressOf(dispatch.model));
  order.mutable_swap_in()->set_meter(parts_.metering.PayerOf(&model->function, model->function.key().name()));
  parts_.orders.GiveFor(
      dispatch.model, dispatch.gpu, std::move(order),
      SwapInOrdered{{dispatch, 0}, parts_.runtimes.Life(dispatch.gpu), ModelWas::kAhead, 0, nullptr});
}

Consequences Swaps::NotBrought(const Dispatch& dispatch, const absl::Status& why) {
  parts_.routers.ResidencyChanged();
  return parts_.scheduler.Apply(SwapInDone{.gpu = dispatch.gpu, .model = dispatch.model, .status = why},
                                parts_.out.now());
}

void Swaps::On(const SwapInOrdered& purpose, const proto::WorkerOutcome& outcome) {
  // The pin ends before anything is planned anew: else the source would refuse to evict the model.
  parts_.peer_copies.End(purpose.copy);
  // The model comes also when its request was cancelled or expired on the way.
  if (parts_.runtimes.Lives(purpose.start.dispatch.gpu, purpose.life))
    Ended(purpose.start, purpose.source, outcome);
}

void Swaps::Ended(const HeldStart& start, ModelWas source, const proto::WorkerOutcome& outcome) {
  const auto& dispatch = start.dispatch;
  if (auto* held = parts_.requests.Current(dispatch.request, start.serial)) held->swap = outcome;
  if (dispatch.source == SwapSource::kResident) return;  // a state alone
  parts_.routers.ResidencyChanged();
  const auto now = parts_.out.now();
  const Duration took(outcome.end_ns() - outcome.begin_ns());
  Bytes moved(outcome.bytes());
  Bytes taken = moved;  // on the device
  // Of a broadcast the outcome tells how many bytes came from the host instead.
  if (source == ModelWas::kBroadcast) {
    if (moved > Bytes(0)) source = ModelWas::kHost;
    taken = Bytes(0);
    moved = parts_.scheduler.WeightsOf(dispatch.model);
  }
  std::vector<std::string> evicted;
  for (const auto& victim : dispatch.victims) evicted.push_back(victim.text());
  Note(dispatch.gpu, {dispatch.model.text(), source, dispatch.peer, moved, took, now, std::move(evicted),
                      StatusOf(outcome)});
  const auto consequences =
      parts_.scheduler.Apply(SwapInDone{dispatch.gpu, dispatch.model, StatusOf(outcome), taken, took}, now);
  parts_.routers.CostChanged(dispatch.model);
  parts_.decisions.CarryOut(consequences);
}

void Swaps::NoteVictims(const Dispatch& dispatch) {
  for (const auto& victim : dispatch.victims) {
    const bool replicated = parts_.scheduler.HolderCount(victim) > 0;
    log_.Evicted(replicated                       ? EvictedAs::kReplicated
                 : parts_.scheduler.Heavy(victim) ? EvictedAs::kHeavy
                                                  : EvictedAs::kLight);
  }
}

// Writes the swap into the log of swaps, and reports it as an event.
void Swaps::Note(GpuIndex gpu, SwapDone swap) {
  const auto words = [this](const std::string& copy) {
    const auto* model = parts_.models.Find(parts_.names.FindModel(copy));
    // A request that was given up meanwhile has no function any more.
    return absl::StrCat("'", model == nullptr ? copy.substr(0, 12) : model->function.key().name(), "'");
  };
  if (swap.source == ModelWas::kPeer || swap.source == ModelWas::kBroadcast)
    swap.peer = parts_.settings.DeviceOf(swap.peer);
  // A model that does not fit is planned anew: that belongs to swapping and is too frequent for an event.
  const bool usual = swap.status.ok() || absl::IsResourceExhausted(swap.status);
  parts_.out.Note(usual ? cluster::kSwapEvent : "swap-failed",
                  SwapText(parts_.settings.DeviceOf(gpu), swap, words));
  log_.Swapped(gpu, std::move(swap));
}

}  // namespace troupe::node
