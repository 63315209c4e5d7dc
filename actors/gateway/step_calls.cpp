#include "actors/gateway/step_calls.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <algorithm>
#include <caf/send.hpp>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/time.hpp"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "cluster/function_table.hpp"
#include "cluster/slo/step_trace.hpp"
#include "cluster/workflows/for_each_limits.hpp"

namespace troupe::actors {

namespace {

// Why a call failed, with what was called where that says more: a function may have other inputs than when the workflow was
// submitted, and a step of an inner run the same name as this one.
absl::Status FromCallee(const proto::WorkflowStep& step, const proto::InferReply& reply) {
  const auto status = StatusIn(reply);
  std::string who;
  if (!step.workflow().empty())
    who = absl::StrCat("workflow '", step.workflow(), "': ");
  else if (absl::IsInvalidArgument(status))
    who = absl::StrCat(cluster::Describe(reply.function()), " refuses the call: ");
  return FromWire(reply.code(), absl::StrCat(who, status.message()));
}

}  // namespace

StepCalls::StepCalls(RunSelf::pointer self, PendingCalls& calls, RunTensors& tensors,
                     transport::TensorChannel& channel, Options options, Run run)
    : self_(self),
      calls_(calls),
      tensors_(tensors),
      channel_(channel),
      options_(std::move(options)),
      run_(std::move(run)),
      random_(options_.seed) {}

void StepCalls::Begin(const proto::WorkflowStep& step, const std::vector<Values>& inputs, Time until,
                      const std::vector<std::string>& keep) {
  auto& under_way = steps_[step.name()];
  under_way.outputs.resize(inputs.size());
  under_way.open = inputs.size();
  under_way.at_once =
      step.for_each().at_once() > 0 ? step.for_each().at_once() : cluster::ForEachLimits::kAtOnce;
  under_way.until = until;
  under_way.keep = keep;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    under_way.waiting.push_back(
        std::make_shared<OneCall>(OneCall{.step = step, .index = i, .inputs = inputs[i]}));
  InvokeMore(step.name());
}

// A call may end at once, and the step with it.
void StepCalls::InvokeMore(const std::string& step) {
  for (;;) {
    const auto it = steps_.find(step);
    if (it == steps_.end() || it->second.waiting.empty() || it->second.active >= it->second.at_once) return;
    const auto call = std::move(it->second.waiting.front());
    it->second.waiting.pop_front();
    ++it->second.active;
    Invoke(call);
  }
}

void StepCalls::Cancel(bool for_good) {
  for (auto& [name, step] : steps_) {
    if (step.waiting.empty()) continue;
    step.failure.Update(absl::CancelledError("the run has ended"));
    step.open -= std::exchange(step.waiting, {}).size();
  }
  for (const auto& [call, run] : std::exchange(open_, {})) {
    proto::CancelInfer cancel;
    if (!run) {
      cancel.set_call(call);
      self_->send(options_.router, std::move(cancel));
    } else {
      cancel.set_call(for_good ? 0 : call);  // without a call: not only its client goes away
      self_->send(run, std::move(cancel));
    }
  }
  EndRetries("");
}

void StepCalls::Forget() {
  ++life_;
  pauses_.clear();
  Cancel(false);
  steps_.clear();
}

void StepCalls::Clear() {
  pauses_.clear();
  steps_.clear();
  for (const auto& [call, run] : open_)
    if (run) caf::anon_send_exit(run, caf::exit_reason::user_shutdown);
  open_.clear();
  options_.router = RouterActor();
  options_.inner_run = nullptr;
}

absl::Status StepCalls::CheckLoaded(const proto::WorkflowStep& step) const {
  if (step.function().empty() || options_.view == nullptr) return absl::OkStatus();
  proto::FunctionKey key;
  key.set_name(step.function());
  key.set_version(step.version());
  const auto status = options_.view->Get()->functions().FindServed(key).status();
  if (!absl::IsUnavailable(status)) return absl::OkStatus();
  return absl::FailedPreconditionError(status.message());
}

void StepCalls::Invoke(const CallPtr& call) {
  if (const auto status = CheckLoaded(call->step); !status.ok()) return CallFailed(call, status, {}, false);
  proto::InferRequest request;
  request.mutable_function()->set_name(call->step.function());
  request.mutable_function()->set_version(call->step.version());
  request.set_workflow(options_.workflow);
  request.set_client_id(cluster::StepTrace(options_.trace, call->step, call->index));
  request.set_call(next_++);
  const auto remaining = steps_[call->step.name()].until - Now(self_);
  if (remaining <= Duration::zero())
    return CallFailed(call, absl::DeadlineExceededError("the run's timeout has passed"), {}, false);
  request.set_timeout_ns(remaining.count());
  for (const auto& name : steps_[call->step.name()].keep) request.add_keep(name);
  std::vector<proto::TensorRef> places;
  for (const auto& input : call->inputs) {
    if (const auto placed = AddInput(input, request, places); !placed.ok()) {
      for (const auto& place : places) static_cast<void>(channel_.Release(place));
      return CallFailed(call, placed, {}, false);
    }
  }
  WorkflowRunActor run;
  if (!call->step.workflow().empty()) {
    auto begun = options_.inner_run(call->step, call->index);
    if (!begun.ok()) {
      for (const auto& place : places) static_cast<void>(channel_.Release(place));
      return CallFailed(call, begun.status(), {}, false);
    }
    run = *std::move(begun);
    self_->monitor(run);
    request.mutable_function()->set_name(call->step.workflow());
    request.clear_workflow();
  }
  const auto number = request.call();
  open_[number] = run;
  auto answered = [this, call, places, number, life = life_,
                   is_run = static_cast<bool>(run)](const absl::StatusOr<proto::InferReply>& reply) {
    open_.erase(number);
    for (const auto& place : places) static_cast<void>(channel_.Release(place));
    const auto status = StatusIn(reply);
    if (status.ok()) return Collect(call, *reply, life);
    if (life != life_) return;
    // A router that is gone without an answer cannot say how far the call had come; a run is found again by its key.
    if (!reply.ok()) return CallFailed(call, status, {}, !is_run);
    if (const auto step = steps_.find(call->step.name()); step != steps_.end())
      step->second.lost.insert(reply->lost_inputs().begin(), reply->lost_inputs().end());
    CallFailed(call, FromCallee(call->step, *reply), Duration(reply->retry_after_ns()),
               reply->state_advanced());
  };
  const auto patience = remaining + options_.patience;
  if (run)
    return Call<proto::InferReply>(self_, calls_, run, patience, std::move(request), std::move(answered));
  Call<proto::InferReply>(self_, calls_, options_.router, patience, std::move(request), std::move(answered));
}

absl::Status StepCalls::AddInput(const RunValue& input, proto::InferRequest& request,
                                 std::vector<proto::TensorRef>& places) {
  for (std::size_t i = 0; i < input.parts.size(); ++i) {
    TROUPE_RETURN_IF_ERROR(AddInput(input.parts[i], request, places));
    auto& part = *request.mutable_inputs(request.inputs_size() - 1);
    part.mutable_spec()->set_name(input.spec.name());
    part.set_continues(i > 0);
  }
  if (!input.parts.empty()) return absl::OkStatus();
  auto& tensor = *request.add_inputs();
  *tensor.mutable_spec() = input.spec;
  if (input.kept) {
    *tensor.mutable_data()->mutable_kept() = *input.kept;
    return absl::OkStatus();
  }
  TROUPE_ASSIGN_OR_RETURN(*tensor.mutable_data(),
                          channel_.Put(std::as_bytes(std::span(*input.bytes)), input.spec.name()));
  places.push_back(tensor.data());
  return absl::OkStatus();
}

std::shared_ptr<const void> StepCalls::Holder(std::uint64_t release) const {
  return {this, [router = options_.router, release](const void*) {
            proto::ReleaseOutputs message;
            message.set_release(release);
            caf::anon_send(router, std::move(message));
          }};
}

// Brings the outputs of one call here; they may still lie in a node's arena. What stays at the node does so until the
// last value that refers to it is gone.
void StepCalls::Collect(const CallPtr& call, const proto::InferReply& reply, std::uint64_t life) {
  auto open = std::make_shared<int>(reply.outputs_size());
  auto outputs = std::make_shared<Values>(static_cast<std::size_t>(reply.outputs_size()));
  const auto holder = reply.release() == 0 ? nullptr : Holder(reply.release());
  const auto done = [this, call, outputs, life, advanced = reply.state_advanced(),
                     took = Duration(reply.times().swap_ns() + reply.times().compute_ns()),
                     called = reply.function(), holder](const absl::Status& status) {
    if (life != life_) return;
    if (!status.ok()) return CallFailed(call, status, {}, advanced);
    auto& under_way = steps_[call->step.name()];
    under_way.outputs[call->index] = std::move(*outputs);
    under_way.took = std::max(under_way.took, took);
    under_way.called = called;
    under_way.advanced |= advanced;
    Called(call->step, status);
  };
  if (*open == 0 || life != life_) return done(absl::OkStatus());
  auto failure = std::make_shared<absl::Status>();
  for (int i = 0; i < reply.outputs_size(); ++i) {
    const auto& output = reply.outputs(i);
    if (output.data().has_kept()) {
      (*outputs)[static_cast<std::size_t>(i)] = {
          .spec = output.spec(), .bytes = nullptr, .kept = output.data().kept(), .holder = holder};
      if (--*open == 0) done(*failure);
      continue;
    }
    tensors_.Fetch(reply.outputs(i), [open, outputs, failure, done, i](absl::StatusOr<RunValue> value) {
      if (value.ok()) {
        (*outputs)[static_cast<std::size_t>(i)] = std::move(*value);
      } else {
        failure->Update(value.status());
      }
      if (--*open == 0) done(*failure);
    });
  }
}

void StepCalls::CallFailed(const CallPtr& call, const absl::Status& status, Duration retry_after,
                           bool advanced) {
  auto& under_way = steps_[call->step.name()];
  under_way.advanced |= advanced;
  const auto before = [&call] {
    return absl::StrCat("; before it, ", call->failures, " calls failed, the last with ",
                        call->last.ToString(absl::StatusToStringMode::kWithNoExtraData));
  };
  if (!run_.running() || !under_way.failure.ok()) return Called(call->step, status);
  if (advanced && cluster::MayReopen(status.code())) {
    return Called(call->step, absl::InternalError(absl::StrCat(
                                  status.ToString(absl::StatusToStringMode::kWithNoExtraData),
                                  "; the state of function '", call->step.function(),
                                  "' may have advanced all the same, so that the call is not made again")));
  }
  if (!cluster::IsPassing(status.code())) {
    if (call->failures == 0) return Called(call->step, status);
    return Called(call->step, FromWire(WireCode(status), absl::StrCat(status.message(), before())));
  }
  if (call->step.has_retries() && call->failures >= call->step.retries()) {
    const auto many = absl::StrCat("; 'retries' of the step allows ", call->step.retries());
    return Called(call->step, FromWire(WireCode(status), absl::StrCat(status.message(), many,
                                                                      call->failures > 0 ? before() : "")));
  }
  ++call->failures;
  call->last = status;
  const auto pause = cluster::RetryPause(options_.retry, call->failures, retry_after, random_);
  if (Now(self_) + pause >= under_way.until) {
    return Called(call->step, absl::DeadlineExceededError(
                                  absl::StrCat("the timeout leaves no time to try again: ", call->failures,
                                               " calls failed, the last with ",
                                               status.ToString(absl::StatusToStringMode::kWithNoExtraData))));
  }
  const std::uint64_t number = next_++;
  pauses_[number] = call;
  After(self_, pause, MakeTick(options_.tick, number));
}

void StepCalls::Retry(std::uint64_t pause) {
  const auto due = pauses_.extract(pause);
  if (!due.empty()) Invoke(due.mapped());
}

void StepCalls::EndRetries(const std::string& step) {
  std::vector<CallPtr> ended;
  std::erase_if(pauses_, [&](const auto& pause) {
    if (!step.empty() && pause.second->step.name() != step) return false;
    ended.push_back(pause.second);
    return true;
  });
  for (const auto& call : ended) Called(call->step, absl::CancelledError("the run has ended"));
}

void StepCalls::Called(const proto::WorkflowStep& step, const absl::Status& status) {
  auto& under_way = steps_[step.name()];
  under_way.failure.Update(status);
  --under_way.active;
  --under_way.open;
  if (!status.ok()) under_way.open -= std::exchange(under_way.waiting, {}).size();
  if (under_way.open > 0) {
    if (status.ok()) return InvokeMore(step.name());
    return EndRetries(step.name());
  }
  auto ended = std::move(under_way);
  steps_.erase(step.name());
  if (!ended.lost.empty() && !ended.advanced) return run_.lost(step, ended.lost);
  if (!ended.lost.empty())
    ended.failure = absl::InternalError(
        absl::StrCat("input '", *ended.lost.begin(), "' was lost, and the state of function '",
                     step.function(), "' may have advanced all the same, so that the step is not run again"));
  auto outputs = ended.failure.ok() ? RunValues::Join(step, ended.outputs) : ended.failure;
  if (!outputs.ok()) return run_.ended(step, outputs.status());
  run_.ended(step, Outcome{*std::move(outputs), ended.took, std::move(ended.called)});
}

}  // namespace troupe::actors
