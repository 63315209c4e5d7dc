// The node controller: what the scheduler decided, as orders to workers, and their outcomes.
#include "actors/node/node_controller_actor.hpp"
#include "base/check.hpp"

namespace troupe::actors {

void NodeController::CarryOut(const node::Dispatch& dispatch) {
  const auto held = requests_.find(dispatch.request);
  const auto* model = models_.Find(dispatch.model);
  TROUPE_CHECK(held != requests_.end() && model != nullptr, "dispatched what this node does not hold");
  auto& request = held->second;
  request.serial = next_serial_++;
  request.gpu = dispatch.gpu;
  request.swap.Clear();
  request.run.Clear();
  NoteDispatch(dispatch, request);
  request.run_sequence = 0;
  request.spoiled_state = false;
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
  auto* request = Current(dispatch.request, serial);
  const auto* model = models_.Find(dispatch.model);
  if (request == nullptr) return;
  if (model == nullptr) {  // taken off this node meanwhile
    proto::WorkerOutcome gone;
    gone.set_code(static_cast<int>(absl::StatusCode::kNotFound));
    return Ran(dispatch, serial, std::move(gone));
  }
  if (dispatch.source != node::SwapSource::kResident || dispatch.bring_state)
    OrderSwapIn(dispatch, serial, model->copy);
  auto order = RunOrderFor(dispatch, request->message, model->copy, Now(this));
  if (const auto* state = declared_.ByKey(dispatch.state))
    *order.mutable_run()->mutable_state() = {state->tensors.begin(), state->tensors.end()};
  request->run_sequence = OrderFor(
      dispatch.model, dispatch.gpu, std::move(order),
      [this, dispatch, serial](proto::WorkerOutcome outcome) { Ran(dispatch, serial, std::move(outcome)); });
}

void NodeController::NoteDispatch(const node::Dispatch& dispatch, HeldRequest& request) {
  request.dispatched = Now(this);
  request.attempt = dispatch.attempt;
  const auto* resident = scheduler_.gpus().at(dispatch.gpu).Find(dispatch.model);
  if (dispatch.source != node::SwapSource::kResident) {
    request.was = dispatch.source == node::SwapSource::kPeer ? ModelWas::kPeer
                  : request.from_disk                        ? ModelWas::kDisk
                                                             : ModelWas::kHost;
  } else {
    request.was = resident != nullptr && resident->state == node::ResidentState::kLoading
                      ? ModelWas::kLoading
                      : ModelWas::kResident;
  }
  if (!request.trial) swaps_.Dispatched(request.was);
  for (const auto& victim : dispatch.victims) {
    const bool replicated = scheduler_.gpus().HolderCount(victim) > 0;
    swaps_.Evicted(replicated ? "replicated" : scheduler_.Heavy(victim) ? "heavy" : "light");
  }
}

void NodeController::OrderEviction(node::GpuIndex gpu, const std::string& model) {
  HasStates(gpu, model) ? EvictWithStates(gpu, model) : EvictModel(gpu, model, false);
}

void NodeController::EvictModel(node::GpuIndex gpu, const std::string& model, bool with_states) {
  const auto life = gpus_[gpu].last.incarnation();
  OrderFor(model, gpu, EvictOrderFor(models_.PackedDigest(model)),
           [this, gpu, model, life, with_states](const proto::WorkerOutcome& outcome) {
             if (gpus_[gpu].last.incarnation() != life || !Up(gpu)) return;
             auto status = StatusOf(outcome);
             if (absl::IsNotFound(status)) status = absl::OkStatus();  // it is gone: what was asked for
             Handle(scheduler_.Apply(node::EvictDone{gpu, model, status}, Now(this)));
             if (with_states) Written(gpu);
           });
}

void NodeController::OrderSwapIn(const node::Dispatch& dispatch, std::uint64_t serial,
                                 const proto::HostCopy& copy) {
  const auto life = gpus_[dispatch.gpu].last.incarnation();
  const auto source = requests_.at(dispatch.request).was;
  auto order = SwapInOrderFor(dispatch, copy, Now(this));
  KeptStatePtr image;
  if (dispatch.bring_state) image = AddState(dispatch.state, *order.mutable_swap_in());
  OrderFor(dispatch.model, dispatch.gpu, std::move(order),
           [this, dispatch, serial, life, source, image](const proto::WorkerOutcome& outcome) {
             // The model comes also when its request was cancelled or expired on the way.
             if (gpus_[dispatch.gpu].last.incarnation() != life || !Up(dispatch.gpu)) return;
             if (const auto held = Current(dispatch.request, serial)) held->swap = outcome;
             if (dispatch.source == node::SwapSource::kResident) return;  // a state alone
             const Duration took(outcome.end_ns() - outcome.begin_ns());
             NoteSwap(dispatch.gpu, {dispatch.model, source, Bytes(outcome.bytes()), took, Now(this),
                                     dispatch.victims, StatusOf(outcome)});
             Handle(scheduler_.Apply(node::SwapInDone{dispatch.gpu, dispatch.model, StatusOf(outcome),
                                                      Bytes(outcome.bytes()), took},
                                     Now(this)));
           });
}

void NodeController::Ran(const node::Dispatch& dispatch, std::uint64_t serial, proto::WorkerOutcome outcome) {
  const auto held = Current(dispatch.request, serial);
  if (held == nullptr) return ReleaseSlices(dispatch.gpu, UnsentSlices(outcome, proto::InferReply()));
  const bool advanced = !dispatch.state.empty() && outcome.code() == 0;
  if (advanced && options_.write_back_each_run) return SaveRun(dispatch, serial, std::move(outcome));
  if (advanced) declared_.CountRun(dispatch.state);
  Ended(dispatch, *held, std::move(outcome));
}

void NodeController::Ended(const node::Dispatch& dispatch, HeldRequest& held, proto::WorkerOutcome outcome) {
  held.run = std::move(outcome);
  held.serial = 0;
  auto done = RunDoneFor(dispatch, held.swap, held.run);
  done.spoiled_state = held.spoiled_state;
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
