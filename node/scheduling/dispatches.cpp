#include "node/scheduling/dispatches.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/printable.hpp"
#include "node/parts.hpp"
#include "node/requests/run_limit.hpp"
#include "node/runtimes/worker_orders.hpp"
#include "proto/gpu_instances.hpp"
#include "proto/gpu_sharing.hpp"

namespace troupe::node {

void Dispatches::CarryOut(const Dispatch& dispatch) {
  auto* held = parts_.requests.Find(dispatch.request);
  TROUPE_CHECK(held != nullptr && parts_.models.Find(dispatch.model) != nullptr,
               "dispatched what this node does not hold");
  auto& request = *held;
  Begin(dispatch, dispatch.request, request);
  request.members = dispatch.members;
  parts_.swaps.NoteVictims(dispatch);
  for (const auto& id : dispatch.members) {
    auto* member = parts_.requests.Find(id);
    TROUPE_CHECK(member != nullptr, "dispatched a request that this node does not hold");
    Begin(dispatch, dispatch.request, *member);
  }
  if (request.message.sequence().start()) parts_.sequences.Begin(dispatch.state);
  for (const auto& state : dispatch.leaving) parts_.evictions.OrderLeave(dispatch.gpu, dispatch.model, state);
  for (const auto& victim : dispatch.victims) parts_.evictions.Order(dispatch.gpu, victim);
  const HeldStart start{dispatch, request.serial};
  if (!parts_.evictions.Writing(dispatch.gpu)) return Start(start);
  parts_.evictions.StartBehind(start);
}

void Dispatches::Begin(const Dispatch& dispatch, const RequestId& leader, HeldRequest& request) {
  request.serial = parts_.requests.NextSerial();
  request.gpu = dispatch.gpu;
  request.swap.Clear();
  request.run.Clear();
  request.leader = leader;
  request.members.clear();
  NoteDispatch(dispatch, request);
  request.run_sequence = 0;
  request.batch = 0;
  request.sm_percent = 0;
  request.scaled = false;
  request.cancelled = request.spoiled_state = false;
}

void Dispatches::Start(const HeldStart& start) {
  const auto& dispatch = start.dispatch;
  if (parts_.requests.Current(dispatch.request, start.serial) == nullptr)
    return;  // its worker was lost while it waited
  if (IsGone(dispatch)) return RunGone(start);
  if (dispatch.source == SwapSource::kPeer) return parts_.peer_copies.Begin(start);
  if (dispatch.source == SwapSource::kBroadcast) return parts_.broadcasts.Gather(start);
  const bool waits = dispatch.source != SwapSource::kHost &&
                     (parts_.peer_copies.Await(start) || parts_.broadcasts.Await(start));
  if (!waits) Go(start);
}

void Dispatches::Go(const HeldStart& start) {
  const auto& dispatch = start.dispatch;
  if (parts_.requests.Current(dispatch.request, start.serial) == nullptr) return;
  if (IsGone(dispatch)) return RunGone(start);
  if (dispatch.source == SwapSource::kHost || dispatch.bring_state) parts_.swaps.Order(start);
  OrderRun(start);
}

bool Dispatches::IsGone(const Dispatch& dispatch) const {
  if (parts_.models.Find(dispatch.model) == nullptr) return true;
  // The request that was to bring the weights was not ordered: an order for the state alone would bring weights of which
  // the plan of the GPU's memory knows nothing.
  if (dispatch.source == SwapSource::kResident &&
      parts_.scheduler.FindResident(dispatch.gpu, dispatch.model) == nullptr)
    return true;
  return dispatch.state && parts_.states.declared().ByKey(dispatch.state) == nullptr;
}

void Dispatches::RunGone(const HeldStart& start) {
  if (parts_.requests.Current(start.dispatch.request, start.serial) == nullptr) return;
  parts_.decisions.CarryOut(TurnBack(
      start, absl::NotFoundError(
                 "the model, or its function's state, left the node or the GPU before the run was ordered")));
}

Consequences Dispatches::TurnBack(const HeldStart& start, const absl::Status& why) {
  const auto& dispatch = start.dispatch;
  if (parts_.requests.Current(dispatch.request, start.serial) == nullptr) return {};
  RunDone done{.gpu = dispatch.gpu, .request = dispatch.request, .end = RunEnd::kNotOrdered};
  done.status = why;
  return parts_.scheduler.Apply(done, parts_.out.now());
}

void Dispatches::OrderRun(const HeldStart& start) {
  const auto& dispatch = start.dispatch;
  auto* held = parts_.requests.Current(dispatch.request, start.serial);
  if (held == nullptr) return;  // its worker was lost while it waited for a copy
  if (IsGone(dispatch)) return RunGone(start);
  auto order =
      RunOrderFor(dispatch, held->message, parts_.models.Find(dispatch.model)->copy, parts_.out.now());
  for (const auto& id : dispatch.members)
    *order.mutable_run()->add_members()->mutable_inputs() = parts_.requests.Find(id)->message.inputs();
  const auto* function = parts_.models.FunctionOf(held->message);
  if (function != nullptr) {
    order.mutable_run()->set_precision(function->precision());
    order.mutable_run()->set_function(absl::StrCat(function->key().name(), "/", function->key().version()));
    if (function->has_sharing()) *order.mutable_run()->mutable_sharing() = function->sharing();
    if (parts_.scheduler.HasOwners()) ShareOfOwner(dispatch, function->key().name(), *order.mutable_run());
    held->sm_percent = proto::SmPercentOf(order.run().sharing());
    held->scaled = proto::IsScaled(function->sharing());
  }
  order.mutable_run()->set_meter(parts_.metering.PayerOf(*held));
  held->limit = RunLimitFor(Duration(function == nullptr ? 0 : function->run_limit_ns()),
                            parts_.scheduler.RunsOf(dispatch.model, dispatch.gpu),
                            order.run().sharing().sm_partition());
  // What is known is about runs of one request.
  held->limit.limit *= static_cast<Duration::rep>(1 + dispatch.members.size());
  parts_.kept_tensors.Number(held->message, *order.mutable_run());
  if (held->profiled) AsTrial(*held, *order.mutable_run());
  order.mutable_run()->set_run_limit_ns(held->limit.limit.count());
  if (const auto* state = parts_.states.declared().ByKey(dispatch.state))
    *order.mutable_run()->mutable_state() = {state->tensors.begin(), state->tensors.end()};
  held->run_sequence =
      parts_.orders.GiveFor(dispatch.model, dispatch.gpu, std::move(order), RunOrdered{start});
  if (held->cancelled) parts_.requests.CancelAtWorker(dispatch.gpu, dispatch.request);
}

// A function that owns parts of GPUs has its instances on this one, of those that it has in the cluster.
void Dispatches::ShareOfOwner(const Dispatch& dispatch, const std::string& function,
                              proto::RunOrder& run) const {
  const auto* owned = parts_.scheduler.OwnedOn(parts_.names.Function(function), dispatch.model,
                                               parts_.settings.DeviceOf(dispatch.gpu));
  if (owned == nullptr) return;
  auto& sharing = *run.mutable_sharing();
  sharing.set_max_instances(owned->instances);
  // Instances differ when they follow a load or are of several versions.
  sharing.set_quota_request(owned->MeanQuota());
  if (owned->MeanSms() != proto::SmPercentOf(sharing)) sharing.set_sm_partition(owned->MeanSms());
}

// On the share that the trial is about; how the function's other runs share the GPU stays as it is.
void Dispatches::AsTrial(HeldRequest& held, proto::RunOrder& run) const {
  *run.mutable_sharing() = *held.profiled;
  run.set_function(absl::StrCat("profile/", held.message.function().name()));
  held.limit = {held.expiry - parts_.out.now(), RunLimit::Source::kDeclared};
}

void Dispatches::NoteDispatch(const Dispatch& dispatch, HeldRequest& request) {
  request.dispatched = parts_.out.now();
  // A request that is planned again, since it did not fit or its worker died, is still one request.
  const bool first = std::exchange(request.attempt, dispatch.attempt) == 0;
  const auto* resident = parts_.scheduler.FindResident(dispatch.gpu, dispatch.model);
  if (dispatch.source != SwapSource::kResident) {
    request.was = dispatch.source == SwapSource::kPeer        ? ModelWas::kPeer
                  : dispatch.source == SwapSource::kBroadcast ? ModelWas::kBroadcast
                  : request.from_disk                         ? ModelWas::kDisk
                                                              : ModelWas::kHost;
  } else {
    request.was = resident != nullptr && resident->state == ResidentState::kLoading ? ModelWas::kLoading
                                                                                    : ModelWas::kResident;
  }
  if (first && !request.trial) parts_.swaps.log().Dispatched(request.was);
}

void Dispatches::On(const RunOrdered& purpose, proto::WorkerOutcome& outcome) {
  Ran(purpose.start, std::move(outcome));
}

void Dispatches::Ran(const HeldStart& start, proto::WorkerOutcome outcome) {
  const auto& dispatch = start.dispatch;
  auto* held = parts_.requests.Current(dispatch.request, start.serial);
  if (held == nullptr)
    return parts_.requests.ReleaseSlices(dispatch.gpu, UnsentSlices(outcome, proto::InferReply()));
  const bool advanced = dispatch.state && outcome.code() == 0;
  // It ran on what lay there before, and not on the state that it was to bring.
  if (advanced && dispatch.bring_state && held->swap.code() != 0)
    return EndUnkept(dispatch, *held, std::move(outcome), held->swap.message());
  // What ends with this run is not kept.
  const bool ends = held->message.sequence().end();
  if (advanced && !ends && parts_.settings.state_write_back == StateWriteBack::kRun)
    return parts_.write_backs.SaveRun(start, std::move(outcome));
  if (advanced) parts_.states.declared().CountRun(dispatch.state);
  End(dispatch, *held, std::move(outcome));
}

void Dispatches::End(const Dispatch& dispatch, HeldRequest& held, proto::WorkerOutcome outcome) {
  if (outcome.code() != 0) parts_.routers.ResidencyChanged();  // its model may turn out not to be there
  // The model counted as resident: its worker took it over, and found that it is not whole. What a state lacks is
  // another matter.
  if (parts_.settings.keep_weights == KeepWeights::kOn && absl::IsNotFound(StatusOf(outcome)) &&
      held.was == ModelWas::kResident && !dispatch.state && !outcome.message().empty())
    parts_.out.Note("weights-dropped", absl::StrCat(parts_.settings.Label(dispatch.gpu), ": ",
                                                    PrintableAscii(outcome.message(), 256)));
  if (!held.trial) CountDemand(dispatch, held, outcome);
  Divide(dispatch, held, std::move(outcome));
  auto done = RunDoneFor(dispatch, held.swap, held.run);
  done.spoiled_state = held.spoiled_state;
  if (done.cut) {
    done.status = RunCut(held.message.function().name(), Duration(held.run.run().compute_ns()), held.limit);
    parts_.out.Note("run-cut",
                    absl::StrCat(parts_.settings.Label(dispatch.gpu), ": ", done.status.message()));
  }
  const auto consequences = parts_.scheduler.Apply(done, parts_.out.now());
  parts_.routers.CostChanged(dispatch.model);
  parts_.decisions.CarryOut(consequences);
}

void Dispatches::CountDemand(const Dispatch& dispatch, const HeldRequest& held,
                             const proto::WorkerOutcome& outcome) {
  if (held.sm_percent == 0) return;
  const Duration gpu_time = GpuTimeOf(outcome.run()) * held.sm_percent / 100;
  parts_.requests.demand().Ran(dispatch.model->digest, gpu_time);
  const auto answered = outcome.code() == 0 ? 1 + dispatch.members.size() : 0;
  if (held.scaled) parts_.requests.scaled_runs().Ran(held.message.function(), answered, gpu_time);
}

void Dispatches::Divide(const Dispatch& dispatch, HeldRequest& leader, proto::WorkerOutcome outcome) {
  const auto members = static_cast<int>(dispatch.members.size());
  if (outcome.code() == 0 && outcome.run().members_size() != members) {
    parts_.requests.ReleaseSlices(dispatch.gpu, UnsentSlices(outcome, proto::InferReply()));
    outcome.mutable_run()->clear_members();
    outcome.mutable_run()->clear_outputs();
    outcome.set_code(static_cast<int>(absl::StatusCode::kInternal));
    outcome.set_message(absl::StrCat("the worker did not answer all ", members + 1, " requests of its run"));
  }
  leader.run = std::move(outcome);
  // Only a run has outputs: in its place an outcome may say how much room there was, which a write would erase.
  proto::RunOutcome* const run = leader.run.has_run() ? leader.run.mutable_run() : nullptr;
  proto::RunOutcome taken;  // what is not copied to each member
  if (run != nullptr) {
    taken.mutable_members()->Swap(run->mutable_members());
    taken.mutable_outputs()->Swap(run->mutable_outputs());
  }
  for (int i = 0; i < members; ++i) {
    auto& member = *parts_.requests.Find(dispatch.members[static_cast<std::size_t>(i)]);
    member.run = leader.run;
    if (i < taken.members_size())
      member.run.mutable_run()->mutable_outputs()->Swap(taken.mutable_members(i)->mutable_outputs());
    member.serial = 0;
    member.batch = static_cast<std::uint32_t>(members) + 1;
  }
  if (run != nullptr) run->mutable_outputs()->Swap(taken.mutable_outputs());
  leader.serial = 0;
  leader.batch = static_cast<std::uint32_t>(members) + 1;
}

void Dispatches::EndUnkept(const Dispatch& dispatch, HeldRequest& held, proto::WorkerOutcome run,
                           const std::string& why) {
  held.spoiled_state = true;
  run.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  run.set_message(
      absl::StrCat("the run's state could not be kept, and is as it was before: ", why, "; try again"));
  End(dispatch, held, std::move(run));
}

}  // namespace troupe::node
