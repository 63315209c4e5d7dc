// The node controller: how models come onto GPUs, and the loans when one comes from another GPU: the lender's
// worker holds it from its answer to the Lend order until the Return; in between the borrower copies it.
// Every loan that was granted is returned once, however the copy ended.
#include "actors/node/node_controller_actor.hpp"

namespace troupe::actors {

void NodeController::OrderSwapIn(const node::Dispatch& dispatch, std::uint64_t serial,
                                 const proto::LendOutcome* lent, Loans::Ticket loan,
                                 const proto::Broadcast* broadcast) {
  const auto life = gpus_[dispatch.gpu].last.incarnation();
  const auto source = requests_.at(dispatch.request).was;
  const auto& copy = models_.Find(dispatch.model)->copy;
  auto order = SwapInOrderFor(dispatch, copy, Now(this));
  order.mutable_swap_in()->set_address(addresses_.Of(dispatch.model, Bytes(copy.weights().length())));
  KeptStatePtr image;  // until the worker has read it
  if (dispatch.bring_state) image = AddState(dispatch.state, *order.mutable_swap_in());
  if (lent != nullptr) {
    *order.mutable_swap_in()->mutable_lent() = lent->weights();
    order.mutable_swap_in()->set_from_gpu(DeviceOf(dispatch.peer));  // links lie between GPUs
  }
  if (broadcast != nullptr) *order.mutable_swap_in()->mutable_broadcast() = *broadcast;
  OrderFor(dispatch.model, dispatch.gpu, std::move(order),
           [this, dispatch, serial, life, source, loan, image](const proto::WorkerOutcome& outcome) {
             // Before anything is planned anew: the lender must not refuse to evict what it lent.
             if (const auto ended = loans_.End(loan)) Return(ended->lender, ended->id);
             // The model comes also when its request was cancelled or expired on the way.
             if (gpus_[dispatch.gpu].last.incarnation() != life || !Up(dispatch.gpu)) return;
             SwappedIn(dispatch, serial, source, outcome);
           });
}

void NodeController::SwappedIn(const node::Dispatch& dispatch, std::uint64_t serial, ModelWas source,
                               const proto::WorkerOutcome& outcome) {
  if (const auto held = Current(dispatch.request, serial)) held->swap = outcome;
  if (dispatch.source == node::SwapSource::kResident) return;  // a state alone
  ++residency_;
  const Duration took(outcome.end_ns() - outcome.begin_ns());
  Bytes moved(outcome.bytes());
  Bytes taken = moved;  // on the device
  // Of a broadcast the outcome tells what came from the host instead.
  if (source == ModelWas::kBroadcast) {
    if (moved > Bytes(0)) source = ModelWas::kHost;
    taken = Bytes(0);
    moved = scheduler_.WeightsOf(dispatch.model);
  }
  NoteSwap(dispatch.gpu, {dispatch.model, source, dispatch.peer, moved, took, Now(this), dispatch.victims,
                          StatusOf(outcome)});
  Handle(scheduler_.Apply(node::SwapInDone{dispatch.gpu, dispatch.model, StatusOf(outcome), taken, took},
                          Now(this)));
}

// What is evicted for it has no state, so that nothing is written back first.
void NodeController::OrderAhead(const node::Dispatch& dispatch) {
  NoteVictims(dispatch);
  swaps_.Dispatched(ModelWas::kAhead);
  for (const auto& victim : dispatch.victims) OrderEviction(dispatch.gpu, victim);
  const auto life = gpus_[dispatch.gpu].last.incarnation();
  const auto& copy = models_.Find(dispatch.model)->copy;
  auto order = SwapInOrderFor(dispatch, copy, Now(this));
  order.mutable_swap_in()->set_address(addresses_.Of(dispatch.model, Bytes(copy.weights().length())));
  OrderFor(dispatch.model, dispatch.gpu, std::move(order),
           [this, dispatch, life](const proto::WorkerOutcome& outcome) {
             if (gpus_[dispatch.gpu].last.incarnation() != life || !Up(dispatch.gpu)) return;
             SwappedIn(dispatch, 0, ModelWas::kAhead, outcome);
           });
}

void NodeController::Borrow(const node::Dispatch& dispatch, std::uint64_t serial) {
  const auto loan = loans_.Ask(dispatch.peer, dispatch.gpu, dispatch.model);
  OrderFor(dispatch.model, dispatch.peer, LendOrderFor(models_.PackedDigest(dispatch.model)),
           [this, dispatch, serial, loan](const proto::WorkerOutcome& outcome) {
             Lent(dispatch, serial, loan, outcome);
           });
}

void NodeController::Lent(const node::Dispatch& dispatch, std::uint64_t serial, Loans::Ticket loan,
                          const proto::WorkerOutcome& outcome) {
  const auto id = outcome.lend().loan();
  const auto waiting = loans_.Answered(loan, id);
  if (!waiting) return Return(dispatch.peer, id);
  const bool gone = models_.Find(dispatch.model) == nullptr;  // taken off this node meanwhile
  if (id != 0 && gone && loans_.End(loan)) Return(dispatch.peer, id);
  const bool comes = id != 0 && !gone;
  if (comes) OrderSwapIn(dispatch, serial, &outcome.lend(), loan);
  // Without a loan the runs go as well: the worker answers that their model is not there, and all of them are
  // planned anew.
  OrderRun(dispatch, serial);
  for (const auto& then : *waiting) then();
  if (comes) return;
  auto refused = outcome;
  if (refused.code() == 0) refused.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  SwappedIn(dispatch, serial, ModelWas::kPeer, refused);
}

void NodeController::Return(node::GpuIndex lender, std::uint64_t id) {
  if (id != 0 && Up(lender)) Order(lender, ReturnOrderFor(id), [](const proto::WorkerOutcome&) {});
}

void NodeController::BorrowerLost(node::GpuIndex gpu) {
  for (const auto& loan : loans_.BorrowerLost(gpu)) Return(loan.lender, loan.id);
}

}  // namespace troupe::actors
