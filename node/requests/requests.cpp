#include "node/requests/requests.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "node/parts.hpp"
#include "node/requests/batch_terms.hpp"
#include "node/runtimes/worker_orders.hpp"
#include "proto/gpu_instances.hpp"

namespace troupe::node {

namespace {

NodeRequest RequestFor(const proto::SubmitRequest& message, FunctionNumber function, ModelNumber copy,
                       Time now) {
  const auto after = [now](std::int64_t ns) {
    return Duration(ns) >= Time::max() - now ? Time::max() : now + Duration(ns);
  };
  return {.id = IdOf(message.id()),
          .function = std::move(function),
          .model = std::move(copy),
          .priority = message.priority(),
          // It may have passed: then the request is late, and nearer to its end than others.
          .deadline = message.deadline_in_ns() == 0 ? Time::max() : after(message.deadline_in_ns()),
          .expiry = message.timeout_in_ns() <= 0 ? Time::max() : after(message.timeout_in_ns()),
          .percentile = message.slo_percentile(),
          .named = message.has_gpu() ? message.gpu() : kNoGpu};
}

// A function with few instances, or with a quota of time, has one run more at a GPU than compute there: others
// find places while its runs wait for their turns.
void ShareGpu(const proto::GpuSharing& sharing, NodeRequest& request) {
  request.sm_percent = proto::SmPercentOf(sharing);
  request.own_places = proto::HasQuota(sharing);
  request.gpu_mem = Bytes(sharing.gpu_mem());
  if (sharing.max_instances() > 0 || proto::HasQuota(sharing))
    request.most_on_gpu = proto::InstancesOf(sharing, 1) + 1;
}

void EndUnscheduled(Parts& parts, const Finished& finished) {
  parts.requests.Finish(finished);
  parts.decisions.Decide();  // a sequence may have its room now, or another trial may begin
}

}  // namespace

void Requests::Bounce(Ask ask, proto::BounceReason reason, const std::string& message) {
  proto::SubmitReply reply;
  reply.mutable_bounced()->set_reason(reason);
  reply.mutable_bounced()->set_message(message);
  parts_.out.Add(node::Answer<proto::SubmitReply>{ask, std::move(reply)});
}

// False: it was bounced.
bool Requests::MayEnter(const RequestArrived& event, const RequestId& id, bool has_state) {
  if (event.message.node_epoch() != parts_.membership.epoch()) {
    Bounce(event.ask, proto::BOUNCE_STALE_EPOCH, "the node has a new epoch");
    return false;
  }
  const auto& over = has_state && event.lease_over.empty() ? event.exclusive_lease_over : event.lease_over;
  if (!over.empty()) {
    Bounce(event.ask, proto::BOUNCE_LEASE_OVER, over);
    return false;
  }
  if (!requests_.contains(id)) return true;
  Bounce(event.ask, proto::BOUNCE_UNSPECIFIED, "a request with this id is under way");
  return false;
}

// A plan is made with the precision of the model's first function here.
BatchTerms Requests::TermsOf(const proto::FunctionRecord& function, const proto::SubmitRequest& message,
                             const ModelNumber& copy) const {
  const auto* model = parts_.models.Find(copy);
  if (model == nullptr || model->function.precision() != function.precision()) return {};
  return BatchTermsOf(function, message, parts_.scheduler.batching());
}

void Requests::On(RequestArrived& event) {
  auto& message = event.message;
  const auto id = IdOf(message.id());
  const auto function = parts_.names.Function(message.function().name());
  const auto* state = parts_.states.declared().Find(function, message.function().version());
  if (!MayEnter(event, id, state != nullptr)) return;
  const auto copy = parts_.models.CopyFor(message);
  if (!copy.ok()) return Bounce(event.ask, proto::BOUNCE_NOT_ADOPTED, std::string(copy.status().message()));
  if (state != nullptr && !parts_.states.IsHome((*copy)->digest.text()))
    return Bounce(event.ask, proto::BOUNCE_NOT_ADOPTED,
                  absl::StrCat("this node is not the home of the state of ", state->name));
  if (!parts_.routers.ledger().Take(id.router))
    return Bounce(event.ask, proto::BOUNCE_NO_CREDIT, "no credit left");
  demand_.Asked((*copy)->digest, parts_.out.now());
  auto request = RequestFor(message, function, *copy, parts_.out.now());
  if (state != nullptr) request.state = state->key;
  if (const auto* record = parts_.models.FunctionOf(message)) {
    ShareGpu(record->sharing(), request);
    if (parts_.scheduler.batching().Joins()) request.batch = TermsOf(*record, message, *copy);
    request.profiled_runs = parts_.model_profiles.RunTimesOf(*record, message);
  }
  auto& held = requests_[id];
  held.message = std::move(message);
  held.ask = event.ask;
  held.waiting = static_cast<std::uint32_t>(parts_.scheduler.waiting());
  held.expiry = request.expiry;
  if (state != nullptr && !state->failed.ok())
    return Finish({.id = id, .kind = FinishKind::kFailed, .status = state->failed});
  if (held.message.has_sequence()) {
    const auto opened = parts_.sequences.Open(state, held.message);
    if (!opened.ok()) return Finish({.id = id, .kind = FinishKind::kFailed, .status = opened.status()});
    held.sequence = request.state = *opened;
    request.begins_state = held.message.sequence().start();
  }
  held.elsewhere = event.inputs_elsewhere;
  Enter(held, std::move(request));
}

// Its inputs come to where it can read them, before the scheduler hears of it.
void Requests::Enter(HeldRequest& held, NodeRequest request) {
  const bool keeps = KeptTensors::Some(held.message.inputs());
  // Such a run has inputs or outputs of its own, that no batch joins.
  if (keeps || !held.message.keep().empty()) request.batch = {};
  // What the scheduler would refuse is not worth a transfer.
  const bool welcome = parts_.scheduler.Knows(request.model) && !parts_.scheduler.draining();
  if (!welcome) return Schedule(request);
  if (!keeps) return BringOrSchedule(held, request);
  const auto lost = [this](const proto::Tensor& input) {
    return input.data().has_kept() && !parts_.kept_tensors.Keeps(input.data().kept());
  };
  if (std::ranges::any_of(held.message.inputs(), lost))
    return EndUnscheduled(parts_,
                          {.id = request.id, .kind = FinishKind::kFailed, .status = absl::DataLossError("")});
  const auto device = parts_.kept_tensors.Place(held.message.inputs(), request);
  if (device) request.named = *device;
  for (int i = 0; i < held.message.inputs_size(); ++i) {
    const auto& data = held.message.inputs(i).data();
    if (data.has_kept() && !parts_.kept_tensors.IsOn(data.kept(), device))
      held.kept_elsewhere.emplace(i, data.kept());
  }
  if (device) parts_.kept_tensors.UseCopies(*held.message.mutable_inputs(), *device);
  held.exports = parts_.kept_tensors.BringInputs(request.id, held.message.inputs(), device);
  if (held.exports == 0) return BringOrSchedule(held, request);
  held.request = std::move(request);
  held.awaits_inputs = true;
  ++awaiting_inputs_;
}

void Requests::BringOrSchedule(HeldRequest& held, const NodeRequest& request) {
  if (!held.elsewhere) return Schedule(request);
  held.request = request;
  held.awaits_inputs = held.brought = true;
  ++awaiting_inputs_;
  parts_.out.Add(BringInputs{request.id, held.message.inputs(), held.expiry});
}

void Requests::InputExported(const RequestId& id, int index, const absl::Status& status,
                             const proto::TensorRef& place) {
  auto* held = Find(id);
  if (held == nullptr || held->exports == 0) return;  // it has ended
  if (!status.ok()) {
    const bool lost = absl::IsNotFound(status);
    return EndUnscheduled(parts_, {.id = id,
                                   .kind = FinishKind::kFailed,
                                   .status = lost ? absl::DataLossError(status.message()) : status});
  }
  *held->message.mutable_inputs(index)->mutable_data() = place;
  if (--held->exports > 0) return;
  held->awaits_inputs = false;
  --awaiting_inputs_;
  const auto request = std::exchange(held->request, {});
  BringOrSchedule(*held, request);
}

void Requests::On(InputsArrived& event) {
  auto* held = Find(event.id);
  if (held == nullptr || !std::exchange(held->awaits_inputs, false)) return;
  --awaiting_inputs_;
  if (event.inputs.ok()) {
    *held->message.mutable_inputs() = *std::move(event.inputs);
    const auto request = std::exchange(held->request, {});
    return Schedule(request);
  }
  const auto& status = event.inputs.status();
  if (held->trial)
    return EndUnscheduled(parts_, {.id = event.id, .kind = FinishKind::kFailed, .status = status});
  const bool late = parts_.out.now() >= held->expiry;
  EndUnscheduled(parts_, {.id = event.id,
                          .kind = late ? FinishKind::kExpired : FinishKind::kBounced,
                          .status = late ? absl::DeadlineExceededError(status.message()) : status,
                          .bounce = proto::BOUNCE_NO_INPUTS});
}

HeldRequest& Requests::HoldTrial(const RequestId& id, const ModelNumber& copy) {
  auto& held = requests_[id];
  held.trial = copy;
  return held;
}

void Requests::AwaitZeros(const NodeRequest& request) {
  auto& held = requests_.at(request.id);
  held.request = request;
  held.awaits_inputs = held.brought = true;
  ++awaiting_inputs_;
  parts_.out.Add(PlaceZeros{request.id, held.message.inputs()});
}

void Requests::Schedule(const NodeRequest& request) {
  if (!request.trial) parts_.trials.Stop();
  const bool known = parts_.scheduler.Knows(request.model);
  requests_.at(request.id).from_disk = known && !parts_.copies.Usable(request.model);
  auto submitted = parts_.scheduler.Submit(request, parts_.out.now());
  if (!submitted.accepted) Finish(submitted.finished);
  if (submitted.accepted) parts_.sequences.Look(request.state);
  for (const auto& [gpu, model] : submitted.evictions) parts_.evictions.Order(gpu, model);
  parts_.decisions.Decide();
  parts_.routers.StandingChanged();
  parts_.routers.WorkChanged();
}

HeldRequest* Requests::Find(const RequestId& id) {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : &it->second;
}

HeldRequest* Requests::Current(const RequestId& id, std::uint64_t serial) {
  auto* held = Find(id);
  return held == nullptr || held->serial != serial ? nullptr : held;
}

void Requests::Finish(const Finished& finished) {
  const auto it = requests_.find(finished.id);
  TROUPE_CHECK(it != requests_.end(), "a request ended that this node does not hold");
  if (it->second.awaits_inputs) --awaiting_inputs_;
  auto held = std::move(it->second);
  requests_.erase(it);
  parts_.routers.WorkChanged();
  if (held.profiled) return parts_.profile_trials.Ended(finished, held);
  held.trial ? parts_.trials.Ended(finished, held) : Answer(finished, held);
  if (held.sequence) parts_.sequences.Ended(held.sequence, held.message.sequence(), finished);
}

void Requests::Tell(const Finished& finished, const HeldRequest& held, proto::RunStory& story) const {
  story.set_waiting(held.waiting);
  story.set_fetched_inputs(held.brought);
  story.set_batch_size(held.batch);
  story.set_leads_batch(held.batch > 0 && held.leader == finished.id);
  if (finished.gpu == kNoGpu) return;
  story.set_source(Name(held.was));
  story.set_swapped_bytes(held.swap.bytes());
  // Only of a late request, because every request at the node is looked at.
  const Time arrived = held.dispatched - finished.queued;
  const Duration deadline(held.message.deadline_in_ns());
  if (deadline == Duration::zero() || parts_.out.now() - arrived <= deadline) return;
  for (const auto& [id, other] : requests_)
    if (other.serial != 0 && other.gpu == finished.gpu) story.add_beside(other.message.function().name());
}

// A request that reads kept tensors ends with them, or was sent to a GPU that does not have them: then it is planned anew.
Finished Requests::Judge(const Finished& finished, const HeldRequest& held) const {
  const bool no_gpu = finished.kind == FinishKind::kBounced && finished.bounce == proto::BOUNCE_NO_GPU;
  const bool no_input = finished.kind == FinishKind::kFailed && absl::IsDataLoss(finished.status);
  const bool reads_kept = KeptTensors::Some(held.message.inputs()) || !held.kept_elsewhere.empty();
  if (!reads_kept || !(no_gpu || no_input)) return finished;
  auto judged = finished;
  const auto lost = parts_.kept_tensors.LostInputs(held, no_input);
  if (!lost.empty()) {
    judged.kind = FinishKind::kFailed;
    judged.status = absl::DataLossError(absl::StrCat("input '", *lost.begin(), "' is not kept any more"));
  } else {
    judged.kind = FinishKind::kBounced;
    judged.bounce = proto::BOUNCE_NO_INPUTS;
  }
  return judged;
}

void Requests::Answer(const Finished& ended, HeldRequest& held) {
  const auto finished = Judge(ended, held);
  auto reply = ReplyFor(finished, held.message, held.swap, held.run, parts_.settings.name);
  if (reply.has_bounced() && held.message.has_gpu()) reply.mutable_bounced()->set_attempts(finished.attempts);
  if (reply.has_served() && finished.gpu != kNoGpu)
    reply.mutable_served()->set_gpu(parts_.settings.DeviceOf(finished.gpu));  // what people call a GPU
  if (finished.gpu != kNoGpu) ReleaseSlices(finished.gpu, UnsentSlices(held.run, reply.served()));
  if (reply.has_served() && finished.gpu != kNoGpu)
    parts_.kept_tensors.Enter(finished.gpu, parts_.metering.PayerOf(held), *reply.mutable_served());
  if (auto slices = SentSlices(reply.served()); slices.slices_size() + slices.kept_size() > 0) {
    reply.mutable_served()->set_release(1);
    KeepUnread(finished, held, {finished.gpu, std::move(slices)});
  }
  if (reply.has_served()) Tell(finished, held, *reply.mutable_served()->mutable_story());
  if (reply.has_served() && absl::IsDataLoss(finished.status)) {
    const bool unread = finished.kind == FinishKind::kFailed;
    for (const auto& input : parts_.kept_tensors.LostInputs(held, unread))
      reply.mutable_served()->add_lost_inputs(input);
  }
  // The run went well and its state is kept, whatever becomes of its outputs.
  const auto* function = parts_.models.FunctionOf(held.message);
  if (finished.kind == FinishKind::kServed && function != nullptr && !function->state().empty())
    reply.mutable_served()->set_state_advanced(true);
  if (held.brought) parts_.out.Add(ForgetInputs{finished.id});
  parts_.routers.ledger().Return(finished.id.router);
  if (finished.kind == FinishKind::kFailed && finished.attempts >= parts_.settings.scheduler.max_attempts)
    parts_.out.Note("request-given-up", std::string(finished.status.message()));
  parts_.out.Add(node::Answer<proto::SubmitReply>{held.ask, std::move(reply)});
}

void Requests::KeepUnread(const Finished& finished, const HeldRequest& held, UnreadSlices unread) {
  if (parts_.routers.Knows(finished.id.router) && !held.unwanted) {
    unread_.Add(finished.id, std::move(unread));
    return parts_.scheduler.Unread(finished.gpu, 1);
  }
  // The answer is not heard, or comes too late.
  parts_.kept_tensors.Forget(unread.slices);
  ReleaseSlices(unread.gpu, unread.slices);
}

void Requests::On(const RequestCancelled& event) {
  if (const auto* held = Find(event.id); held != nullptr && held->awaits_inputs)
    return EndUnscheduled(
        parts_,
        {.id = event.id, .kind = FinishKind::kCancelled, .status = absl::CancelledError("cancelled")});
  Cancel(event.id);
  parts_.decisions.Decide();
}

void Requests::Cancel(const RequestId& id) {
  const auto cancelled = parts_.scheduler.Cancel(id);
  if (cancelled.verdict == CancelVerdict::kCancelled) Finish(cancelled.finished);
  if (cancelled.verdict == CancelVerdict::kInFlight) CancelAtWorker(cancelled.gpu, id);
}

void Requests::CancelAtWorker(GpuIndex gpu, const RequestId& id) {
  auto* held = Find(id);
  if (held == nullptr || held->serial == 0) return;
  held->cancelled = true;
  const auto* leader = Find(held->leader);
  if (leader->run_sequence == 0 || !AllCancelled(*leader)) return;
  proto::WorkerOrder order;
  order.mutable_cancel()->set_target(leader->run_sequence);
  parts_.orders.Give(gpu, std::move(order));
}

bool Requests::AllCancelled(const HeldRequest& leader) const {
  return leader.cancelled && std::ranges::all_of(leader.members, [this](const RequestId& id) {
           return requests_.at(id).cancelled;
         });
}

void Requests::On(const RouterSaidHello& event) {
  for (const auto sequence : event.hello.released()) Released({event.hello.router(), sequence});
}

void Requests::Released(const RequestId& id) {
  if (auto* held = Find(id)) held->unwanted = true;
  const auto unread = unread_.Take(id);
  if (!unread) return;
  parts_.kept_tensors.Forget(unread->slices);
  ReleaseSlices(unread->gpu, unread->slices);
  parts_.scheduler.Unread(unread->gpu, -1);
  if (parts_.scheduler.waiting() > 0) parts_.decisions.Decide();  // its worker may be free for another key
}

void Requests::ReleaseSlices(GpuIndex gpu, const proto::ReleaseOrder& slices) {
  if (slices.slices_size() + slices.kept_size() == 0 || !parts_.runtimes.Up(gpu)) return;
  proto::WorkerOrder order;
  *order.mutable_release() = slices;
  parts_.orders.Give(gpu, std::move(order));
}

void Requests::On(const RouterLost& event) {
  std::vector<RequestId> awaiting;
  for (auto it = requests_.lower_bound({event.router, 0});
       it != requests_.end() && it->first.router == event.router; ++it)
    if (it->second.awaits_inputs) awaiting.push_back(it->first);
  for (const auto& id : awaiting)
    Finish({.id = id, .kind = FinishKind::kCancelled, .status = absl::CancelledError("its router is gone")});
  parts_.decisions.CarryOut(parts_.scheduler.ForgetRouter(event.router));
  for (const auto& unread : unread_.TakeOfRouter(event.router)) {
    parts_.kept_tensors.Forget(unread.slices);
    ReleaseSlices(unread.gpu, unread.slices);
    parts_.scheduler.Unread(unread.gpu, -1);
  }
  if (parts_.scheduler.waiting() > 0) parts_.decisions.Decide();  // as when they are read
}

void Requests::Void(GpuIndex gpu) {
  for (auto& [id, held] : requests_)
    if (held.gpu == gpu) held.serial = 0;
  unread_.ForgetGpu(gpu);
}

}  // namespace troupe::node
