// The node controller: what the scheduler decided, as orders to workers, and their outcomes.
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/node/node_controller_actor.hpp"
#include "base/check.hpp"

namespace troupe::actors {

void NodeController::CarryOut(const node::Dispatch& dispatch) {
  const auto held = requests_.find(dispatch.request);
  TROUPE_CHECK(held != requests_.end() && models_.Find(dispatch.model) != nullptr,
               "dispatched what this node does not hold");
  auto& request = held->second;
  request.serial = next_serial_++;
  request.gpu = dispatch.gpu;
  request.swap.Clear();
  request.run.Clear();
  NoteDispatch(dispatch, request);
  request.run_sequence = 0;
  request.cancelled = request.spoiled_state = false;
  for (const auto& victim : dispatch.victims) OrderEviction(dispatch.gpu, victim);
  if (gpus_[dispatch.gpu].writing == 0) return Start(dispatch, request.serial);
  models_.BeginUse(dispatch.model);  // the orders that wait will read its host copy
  copies_.Read(dispatch.model, Now(this));
  gpus_[dispatch.gpu].behind.push_back([this, dispatch, serial = request.serial] {
    Start(dispatch, serial);
    if (copies_.Unread(dispatch.model, Now(this))) MoveCopies();
    models_.EndUse(dispatch.model);
    models_.Forget(dispatch.model);
  });
}

void NodeController::Start(const node::Dispatch& dispatch, std::uint64_t serial) {
  if (Current(dispatch.request, serial) == nullptr) return;  // its worker was lost while it waited
  if (models_.Find(dispatch.model) == nullptr) return RunGone(dispatch, serial);
  if (dispatch.source == node::SwapSource::kPeer) return Borrow(dispatch, serial);
  if (dispatch.source == node::SwapSource::kBroadcast) return AwaitBroadcast(dispatch, serial);
  const auto go = [this, dispatch, serial] {
    if (Current(dispatch.request, serial) == nullptr) return;
    if (models_.Find(dispatch.model) == nullptr) return RunGone(dispatch, serial);
    if (dispatch.source == node::SwapSource::kHost || dispatch.bring_state) OrderSwapIn(dispatch, serial);
    OrderRun(dispatch, serial);
  };
  const bool waits = dispatch.source != node::SwapSource::kHost &&
                     (loans_.Await(dispatch.gpu, dispatch.model, go) || BehindBroadcast(dispatch, go));
  if (!waits) go();
}

// Its model was taken off this node before its orders could be given.
void NodeController::RunGone(const node::Dispatch& dispatch, std::uint64_t serial) {
  proto::WorkerOutcome gone;
  gone.set_code(static_cast<int>(absl::StatusCode::kNotFound));
  Ran(dispatch, serial, std::move(gone));
}

void NodeController::OrderRun(const node::Dispatch& dispatch, std::uint64_t serial) {
  const auto held = Current(dispatch.request, serial);
  if (held == nullptr) return;  // its worker was lost while it waited for a loan
  const auto* model = models_.Find(dispatch.model);
  if (model == nullptr) return RunGone(dispatch, serial);
  auto order = RunOrderFor(dispatch, held->message, model->copy, Now(this));
  const auto* function = FunctionOf(held->message);
  if (function != nullptr) {
    order.mutable_run()->set_precision(function->precision());
    order.mutable_run()->set_sm_partition(function->sm_partition());
  }
  held->limit = node::RunLimitFor(Duration(function == nullptr ? 0 : function->run_limit_ns()),
                                  scheduler_.RunsOf(dispatch.model), order.run().sm_partition());
  order.mutable_run()->set_run_limit_ns(held->limit.limit.count());
  if (const auto* state = declared_.ByKey(dispatch.state))
    *order.mutable_run()->mutable_state() = {state->tensors.begin(), state->tensors.end()};
  held->run_sequence = OrderFor(
      dispatch.model, dispatch.gpu, std::move(order),
      [this, dispatch, serial](proto::WorkerOutcome outcome) { Ran(dispatch, serial, std::move(outcome)); });
  if (held->cancelled) CancelAtWorker(dispatch.gpu, dispatch.request);
}

void NodeController::NoteDispatch(const node::Dispatch& dispatch, HeldRequest& request) {
  request.dispatched = Now(this);
  // One that is planned again, since it did not fit or its worker died, is still one request.
  const bool first = std::exchange(request.attempt, dispatch.attempt) == 0;
  const auto* resident = scheduler_.FindResident(dispatch.gpu, dispatch.model);
  if (dispatch.source != node::SwapSource::kResident) {
    request.was = dispatch.source == node::SwapSource::kPeer        ? ModelWas::kPeer
                  : dispatch.source == node::SwapSource::kBroadcast ? ModelWas::kBroadcast
                  : request.from_disk                               ? ModelWas::kDisk
                                                                    : ModelWas::kHost;
  } else {
    request.was = resident != nullptr && resident->state == node::ResidentState::kLoading
                      ? ModelWas::kLoading
                      : ModelWas::kResident;
  }
  if (first && !request.trial) swaps_.Dispatched(request.was);
  NoteVictims(dispatch);
}

void NodeController::NoteVictims(const node::Dispatch& dispatch) {
  for (const auto& victim : dispatch.victims) {
    const bool replicated = scheduler_.HolderCount(victim) > 0;
    swaps_.Evicted(replicated ? "replicated" : scheduler_.Heavy(victim) ? "heavy" : "light");
  }
}

void NodeController::OrderEviction(node::GpuIndex gpu, const std::string& model) {
  ++residency_;
  HasStates(gpu, model) ? EvictWithStates(gpu, model) : EvictModel(gpu, model, false);
}

void NodeController::EvictModel(node::GpuIndex gpu, const std::string& model, bool with_states) {
  const auto life = gpus_[gpu].last.incarnation();
  OrderFor(model, gpu, EvictOrderFor(models_.PackedDigest(model)),
           [this, gpu, model, life, with_states](const proto::WorkerOutcome& outcome) {
             if (gpus_[gpu].last.incarnation() != life || !Up(gpu)) return;
             ReleaseSlices(gpu,
                           StateSlices(outcome));  // of states that do not count: the others were read before
             auto status = StatusOf(outcome);
             if (absl::IsNotFound(status)) status = absl::OkStatus();  // it is gone: what was asked for
             // Before anything is decided anew: the worker may be given to somebody else, and nothing is
             // being written on the next one.
             if (with_states) Written(gpu);
             Handle(scheduler_.Apply(node::EvictDone{gpu, model, status}, Now(this)));
           });
}

void NodeController::Ran(const node::Dispatch& dispatch, std::uint64_t serial, proto::WorkerOutcome outcome) {
  const auto held = Current(dispatch.request, serial);
  if (held == nullptr) return ReleaseSlices(dispatch.gpu, UnsentSlices(outcome, proto::InferReply()));
  const bool advanced = !dispatch.state.empty() && outcome.code() == 0;
  // It ran on what lay there before, and not on the state that it was to bring.
  if (advanced && dispatch.bring_state && held->swap.code() != 0)
    return NotKept(dispatch, *held, std::move(outcome), held->swap.message());
  if (advanced && options_.write_back_each_run) return SaveRun(dispatch, serial, std::move(outcome));
  if (advanced) declared_.CountRun(dispatch.state);
  Ended(dispatch, *held, std::move(outcome));
}

void NodeController::Ended(const node::Dispatch& dispatch, HeldRequest& held, proto::WorkerOutcome outcome) {
  if (outcome.code() != 0) ++residency_;  // its model may turn out not to be there
  held.run = std::move(outcome);
  held.serial = 0;
  auto done = RunDoneFor(dispatch, held.swap, held.run);
  done.spoiled_state = held.spoiled_state;
  if (done.cut) {
    done.status = node::RunCut(held.message.function().name(), done.computed, held.limit);
    Note("run-cut", absl::StrCat(Label(dispatch.gpu), ": ", done.status.message()));
  }
  Handle(scheduler_.Apply(done, Now(this)));
}

std::uint64_t NodeController::Order(node::GpuIndex gpu, proto::WorkerOrder order, OnOutcome then) {
  const auto sequence = next_sequence_++;
  order.set_sequence(sequence);
  // An executor answers every order, also when its worker dies; its own end is the node's.
  request(gpus_[gpu].executor, caf::infinite, std::move(order))
      .then([then](proto::WorkerOutcome& outcome) { then(std::move(outcome)); },
            [then, sequence](const caf::error& error) {
              proto::WorkerOutcome outcome;
              outcome.set_sequence(sequence);
              outcome.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
              outcome.set_message(caf::to_string(error));
              then(std::move(outcome));
            });
  return sequence;
}

std::uint64_t NodeController::OrderFor(const std::string& model, node::GpuIndex gpu, proto::WorkerOrder order,
                                       OnOutcome then) {
  const bool reads = !order.has_evict() && !order.has_write_back();
  models_.BeginUse(model);
  if (reads) copies_.Read(model, Now(this));
  return Order(gpu, std::move(order),
               [this, model, reads, then = std::move(then)](proto::WorkerOutcome outcome) {
                 then(std::move(outcome));  // may order an eviction of the model: before its use ends
                 if (reads && copies_.Unread(model, Now(this))) MoveCopies();
                 models_.EndUse(model);
                 models_.Forget(model);
               });
}

}  // namespace troupe::actors
