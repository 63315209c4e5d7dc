// A run's steps: calls of functions, and what they give, committed before a step that needs it begins.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/time.hpp"
#include "actors/gateway/workflow_run_actor.hpp"
#include "base/wire_status.hpp"

namespace troupe::actors {

void WorkflowRun::Advance() {
  if (progress_.state() != proto::RUN_RUNNING && progress_.state() != proto::RUN_PENDING) return Finish();
  for (const auto& step : progress_.TakeReady()) RunStep(progress_.Step(step));
}

void WorkflowRun::RunStep(const proto::WorkflowStep& step) {
  const auto calls = values_.CallsOf(step);
  if (!calls.ok()) return Failed(step, calls.status());
  auto& under_way = steps_[step.name()];
  under_way.outputs.resize(calls->size());
  under_way.open = calls->size();
  under_way.until =
      step.timeout_ns() > 0 ? std::min(expiry_, Now(this) + Duration(step.timeout_ns())) : expiry_;
  for (std::size_t i = 0; i < calls->size(); ++i)
    Invoke(std::make_shared<OneCall>(OneCall{.step = step, .index = i, .inputs = (*calls)[i]}));
}

void WorkflowRun::Invoke(const CallPtr& call) {
  proto::InferRequest request;
  request.mutable_function()->set_name(call->step.function());
  request.mutable_function()->set_version(call->step.version());
  request.set_workflow(progress_.spec().name());
  request.set_call(next_call_++);
  const auto remaining = steps_[call->step.name()].until - Now(this);
  if (remaining <= Duration::zero())
    return CallFailed(call, absl::DeadlineExceededError("the run's timeout has passed"), {}, false);
  request.set_timeout_ns(remaining.count());
  std::vector<proto::TensorRef> places;
  for (const auto& input : call->inputs) {
    const auto ref = channel_.Put(std::as_bytes(std::span(*input.bytes)), input.spec.name());
    if (!ref.ok()) {
      for (const auto& place : places) static_cast<void>(channel_.Release(place));
      return CallFailed(call, ref.status(), {}, false);
    }
    auto& tensor = *request.add_inputs();
    *tensor.mutable_spec() = input.spec;
    *tensor.mutable_data() = *ref;
    places.push_back(*ref);
  }
  const auto number = request.call();
  open_calls_.insert(number);
  Call<proto::InferReply>(
      this, calls_, router_, remaining + options_.commit_timeout, std::move(request),
      [this, call, places, number, life = life_](const absl::StatusOr<proto::InferReply>& reply) {
        open_calls_.erase(number);
        for (const auto& place : places) static_cast<void>(channel_.Release(place));
        const auto status = StatusOf(reply);
        if (status.ok()) return Collect(call, *reply, life);
        if (life != life_) return;
        // A router that is gone without an answer cannot say how far the call had come.
        if (!reply.ok()) return CallFailed(call, status, {}, true);
        CallFailed(call, status, Duration(reply->retry_after_ns()), reply->state_advanced());
      });
}

// Brings the outputs of one call here; they may still lie in a node's arena.
void WorkflowRun::Collect(const CallPtr& call, const proto::InferReply& reply, std::uint64_t life) {
  auto open = std::make_shared<int>(reply.outputs_size());
  auto outputs = std::make_shared<Values>(static_cast<std::size_t>(reply.outputs_size()));
  const auto done = [this, call, outputs, life, advanced = reply.state_advanced(),
                     release = reply.release()](const absl::Status& status) {
    if (release != 0) {
      proto::ReleaseOutputs message;
      message.set_release(release);
      send(router_, std::move(message));
    }
    if (life != life_) return;
    if (!status.ok()) return CallFailed(call, status, {}, advanced);
    steps_[call->step.name()].outputs[call->index] = std::move(*outputs);
    Called(call->step, status);
  };
  if (*open == 0 || life != life_) return done(absl::OkStatus());
  auto failure = std::make_shared<absl::Status>();
  for (int i = 0; i < reply.outputs_size(); ++i) {
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

void WorkflowRun::CallFailed(const CallPtr& call, const absl::Status& status, Duration retry_after,
                             bool advanced) {
  const auto& under_way = steps_[call->step.name()];
  const auto before = [&call] {
    return absl::StrCat("; before it, ", call->failures, " calls failed, the last with ",
                        call->last.ToString(absl::StatusToStringMode::kWithNoExtraData));
  };
  if (progress_.state() != proto::RUN_RUNNING || !under_way.failure.ok()) return Called(call->step, status);
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
  ++call->failures;
  call->last = status;
  const auto pause = cluster::RetryPause(options_.retry, call->failures, retry_after, random_);
  if (Now(this) + pause >= under_way.until) {
    return Called(call->step, absl::DeadlineExceededError(
                                  absl::StrCat("the timeout leaves no time to try again: ", call->failures,
                                               " calls failed, the last with ",
                                               status.ToString(absl::StatusToStringMode::kWithNoExtraData))));
  }
  pauses_[next_pause_] = call;
  After(this, pause, MakeTick(kRetry, next_pause_++));
}

void WorkflowRun::Retry(std::uint64_t pause) {
  const auto due = pauses_.extract(pause);
  if (!due.empty()) Invoke(due.mapped());
}

void WorkflowRun::EndRetries(const std::string& step) {
  std::vector<CallPtr> ended;
  std::erase_if(pauses_, [&](const auto& pause) {
    if (!step.empty() && pause.second->step.name() != step) return false;
    ended.push_back(pause.second);
    return true;
  });
  for (const auto& call : ended) Called(call->step, absl::CancelledError("the run has ended"));
}

void WorkflowRun::Called(const proto::WorkflowStep& step, const absl::Status& status) {
  auto& under_way = steps_[step.name()];
  under_way.failure.Update(status);
  if (--under_way.open > 0) {
    if (!status.ok()) EndRetries(step.name());
    return;
  }
  auto ended = std::move(under_way);
  steps_.erase(step.name());
  if (!ended.failure.ok()) return Failed(step, ended.failure);
  auto outputs = RunValues::Join(step, ended.outputs);
  if (!outputs.ok()) return Failed(step, outputs.status());
  CommitStep(step, *outputs);
}

void WorkflowRun::Failed(const proto::WorkflowStep& step, const absl::Status& status) {
  progress_.Fail(step.name(), status);
  CancelCalls();  // of the steps beside it, which are not needed any more
  Advance();
}

// The outputs are durable before a step that needs them begins.
void WorkflowRun::CommitStep(const proto::WorkflowStep& step, const Values& outputs) {
  Store(outputs, [this, step, outputs, life = life_](absl::StatusOr<RunTensors::Stored> stored) {
    if (life != life_) return;
    if (!stored.ok()) return Failed(step, stored.status());
    if (progress_.state() != proto::RUN_RUNNING)
      return Failed(step, absl::CancelledError("the run has ended"));
    proto::CommitStep command;
    command.set_run(options_.run);
    command.set_step(step.name());
    *command.mutable_outputs() = *std::move(stored);
    if (const auto again = recomputed_.find(step.name()); again != recomputed_.end())
      command.set_recomputed(again->second);
    committed_.insert(step.name());
    session_.Tell(std::move(command),
                  [this, step, outputs, life](const absl::StatusOr<proto::RunReply>& reply) {
                    if (life == life_) Committed(step, outputs, StatusOf(reply));
                  });
  });
}

void WorkflowRun::Committed(const proto::WorkflowStep& step, const Values& outputs,
                            const absl::Status& status) {
  if (absl::IsAborted(status)) return Yield();
  if (!status.ok()) return Failed(step, status);
  for (const auto& output : outputs) values_.Set(absl::StrCat(step.name(), ".", output.spec.name()), output);
  progress_.Commit(step.name());
  Advance();
}

}  // namespace troupe::actors
