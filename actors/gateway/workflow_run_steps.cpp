// A run's steps: calls of functions, and what they give, committed before a step that needs it begins.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/time.hpp"
#include "actors/gateway/workflow_run_actor.hpp"

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
  for (std::size_t i = 0; i < calls->size(); ++i) Invoke(step, i, (*calls)[i]);
}

void WorkflowRun::Invoke(const proto::WorkflowStep& step, std::size_t index, const Values& inputs) {
  proto::InferRequest request;
  request.mutable_function()->set_name(step.function());
  request.mutable_function()->set_version(step.version());
  request.set_workflow(progress_.spec().name());
  request.set_call(next_call_++);
  auto remaining = expiry_ - Now(this);
  if (step.timeout_ns() > 0) remaining = std::min(remaining, Duration(step.timeout_ns()));
  if (remaining <= Duration::zero())
    return Called(step, absl::DeadlineExceededError("the run's timeout has passed"));
  request.set_timeout_ns(remaining.count());
  std::vector<proto::TensorRef> places;
  for (const auto& input : inputs) {
    const auto ref = channel_.Put(std::as_bytes(std::span(*input.bytes)), input.spec.name());
    if (!ref.ok()) {
      for (const auto& place : places) static_cast<void>(channel_.Release(place));
      return Called(step, ref.status());
    }
    auto& tensor = *request.add_inputs();
    *tensor.mutable_spec() = input.spec;
    *tensor.mutable_data() = *ref;
    places.push_back(*ref);
  }
  const auto call = request.call();
  open_calls_.insert(call);
  Call<proto::InferReply>(
      this, calls_, router_, remaining + options_.commit_timeout, std::move(request),
      [this, step, index, places, call, life = life_](const absl::StatusOr<proto::InferReply>& reply) {
        open_calls_.erase(call);
        for (const auto& place : places) static_cast<void>(channel_.Release(place));
        const auto status = StatusOf(reply);
        if (status.ok()) return Collect(step, index, *reply, life);
        if (life == life_) Called(step, status);
      });
}

// Brings the outputs of one call here; they may still lie in a node's arena.
void WorkflowRun::Collect(const proto::WorkflowStep& step, std::size_t index, const proto::InferReply& reply,
                          std::uint64_t life) {
  auto open = std::make_shared<int>(reply.outputs_size());
  auto outputs = std::make_shared<Values>(static_cast<std::size_t>(reply.outputs_size()));
  const auto done = [this, step, index, outputs, life,
                     release = reply.release()](const absl::Status& status) {
    if (release != 0) {
      proto::ReleaseOutputs message;
      message.set_release(release);
      send(router_, std::move(message));
    }
    if (life != life_) return;
    if (status.ok()) steps_[step.name()].outputs[index] = std::move(*outputs);
    Called(step, status);
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

void WorkflowRun::Called(const proto::WorkflowStep& step, const absl::Status& status) {
  auto& under_way = steps_[step.name()];
  under_way.failure.Update(status);
  if (--under_way.open > 0) return;
  auto ended = std::move(under_way);
  steps_.erase(step.name());
  if (!ended.failure.ok()) return Failed(step, ended.failure);
  auto outputs = RunValues::Join(step, ended.outputs);
  if (!outputs.ok()) return Failed(step, outputs.status());
  CommitStep(step, *outputs);
}

void WorkflowRun::Failed(const proto::WorkflowStep& step, const absl::Status& status) {
  progress_.Fail(step.name(), status);
  CancelCalls();  // of the steps beside it: nobody waits for them any more
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
    tie_.Tell(std::move(command), [this, step, outputs, life](const absl::StatusOr<proto::RunReply>& reply) {
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
