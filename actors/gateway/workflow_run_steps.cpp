// A run's steps, and what they give, committed before a step that needs it begins.
#include <algorithm>
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
  const auto calls = results_.values.CallsOf(step);
  if (!calls.ok()) return Failed(step, calls.status());
  const Time until = step.timeout_ns() > 0 ? std::min(client_.expiry, Now(this) + Duration(step.timeout_ns()))
                                           : client_.expiry;
  step_calls_.Begin(step, *calls, until);
}

void WorkflowRun::StepEnded(const proto::WorkflowStep& step, const absl::StatusOr<Values>& outputs) {
  if (!outputs.ok()) return Failed(step, outputs.status());
  CommitStep(step, *outputs);
}

void WorkflowRun::Failed(const proto::WorkflowStep& step, const absl::Status& status) {
  progress_.Fail(step.name(), status);
  step_calls_.Cancel();  // of the steps beside it, which are not needed any more
  Advance();
}

// The outputs are durable before a step that needs them begins.
void WorkflowRun::CommitStep(const proto::WorkflowStep& step, const Values& outputs) {
  Store(outputs, [this, step, outputs, life = ownership_.life](absl::StatusOr<RunTensors::Stored> stored) {
    if (life != ownership_.life) return;
    if (!stored.ok()) return Failed(step, stored.status());
    if (progress_.state() != proto::RUN_RUNNING)
      return Failed(step, absl::CancelledError("the run has ended"));
    proto::CommitStep command;
    command.set_run(options_.run);
    command.set_step(step.name());
    *command.mutable_outputs() = *std::move(stored);
    if (const auto again = results_.recomputed.find(step.name()); again != results_.recomputed.end())
      command.set_recomputed(again->second);
    results_.committed.insert(step.name());
    session_.Tell(std::move(command),
                  [this, step, outputs, life](const absl::StatusOr<proto::RunReply>& reply) {
                    if (life == ownership_.life) Committed(step, outputs, StatusOf(reply));
                  });
  });
}

void WorkflowRun::Committed(const proto::WorkflowStep& step, const Values& outputs,
                            const absl::Status& status) {
  if (absl::IsAborted(status)) return Yield();
  if (!status.ok()) return Failed(step, status);
  for (const auto& output : outputs)
    results_.values.Set(absl::StrCat(step.name(), ".", output.spec.name()), output);
  progress_.Commit(step.name());
  Advance();
}

}  // namespace troupe::actors
