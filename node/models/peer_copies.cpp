#include "node/models/peer_copies.hpp"

#include "node/parts.hpp"
#include "node/runtimes/worker_orders.hpp"

namespace troupe::node {

void PeerCopies::Begin(const HeldStart& start) {
  const auto& dispatch = start.dispatch;
  const auto ticket = copies_.Ask(dispatch.peer, dispatch.gpu, dispatch.model);
  parts_.orders.GiveFor(dispatch.model, dispatch.peer,
                        PinOrderFor(parts_.models.PackedDigest(dispatch.model)), PinOrdered{start, ticket});
}

bool PeerCopies::Await(const HeldStart& start) {
  return copies_.Await(start.dispatch.gpu, start.dispatch.model, start);
}

void PeerCopies::On(const PinOrdered& purpose, const proto::WorkerOutcome& outcome) {
  const auto& dispatch = purpose.start.dispatch;
  const auto pin = outcome.pin().pin();
  const auto waiting = copies_.Answered(purpose.copy, pin);
  if (!waiting) return Release(dispatch.peer, pin);
  const bool gone = parts_.models.Find(dispatch.model) == nullptr;  // taken off this node meanwhile
  if (pin != 0 && gone && copies_.End(purpose.copy)) Release(dispatch.peer, pin);
  const bool comes = pin != 0 && !gone;
  if (comes) parts_.swaps.Order(purpose.start, {.pinned = &outcome.pin(), .copy = purpose.copy});
  // Without a pin the runs go as well: the worker answers that their model is not there, and all of them are
  // planned anew.
  parts_.dispatches.OrderRun(purpose.start);
  for (const auto& start : *waiting) parts_.dispatches.Go(start);
  if (comes) return;
  auto refused = outcome;
  if (refused.code() == 0) refused.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  parts_.swaps.Ended(purpose.start, ModelWas::kPeer, refused);
}

void PeerCopies::End(PeerCopyTable::Ticket ticket) {
  if (const auto ended = copies_.End(ticket)) Release(ended->source, ended->pin);
}

void PeerCopies::Release(GpuIndex source, std::uint64_t pin) {
  if (pin != 0 && parts_.runtimes.Up(source)) parts_.orders.Give(source, UnpinOrderFor(pin));
}

void PeerCopies::On(const RuntimeLost& event) {
  for (const auto& copy : copies_.DestinationLost(event.gpu)) Release(copy.source, copy.pin);
}

}  // namespace troupe::node
