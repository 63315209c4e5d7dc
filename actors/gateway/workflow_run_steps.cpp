// A run's steps: which of them run, and how each ends, durable before a step that reads it is decided.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/time.hpp"
#include "actors/gateway/workflow_run_actor.hpp"
#include "cluster/step_retry.hpp"
#include "cluster/workflows/condition.hpp"

namespace troupe::actors {

using Decided = cluster::StepDecision::Kind;

void WorkflowRun::Advance() {
  const auto truth = [this](const std::string& name) -> absl::StatusOr<bool> {
    const auto value = results_.values.Find(name);
    if (!value.ok()) return value.status();
    return cluster::IsNotZero(name, value->spec, *value->bytes);
  };
  for (const auto& decision : progress_.Decide(truth)) {
    switch (decision.kind) {
      case Decided::kRun:
        RunStep(progress_.Step(decision.step));
        break;
      case Decided::kSkip:
        CommitEnd(decision.step, proto::STEP_SKIPPED, decision.status);
        break;
      case Decided::kFail:
        Failed(progress_.Step(decision.step), decision.status);
        break;
      case Decided::kWait:
        break;
    }
  }
  if (progress_.state() == proto::RUN_RUNNING || progress_.state() == proto::RUN_PENDING) return;
  // Calls of the steps beside it are not needed any more. A run that may go on later finds the runs inside it again.
  step_calls_.Cancel(!cluster::MayReopen(progress_.status().code()));
  Finish();
}

void WorkflowRun::RunStep(const proto::WorkflowStep& step) {
  const auto bound = progress_.Bound(step.name());
  const auto calls = results_.values.CallsOf(bound);
  if (!calls.ok()) return StepFailed(step.name(), calls.status());
  if (!calls->empty())
    return step_calls_.Begin(bound, *calls, progress_.Deadline(step.name(), Now(this), client_.expiry));
  const auto specs = cluster::OutputsOfNoCall(step);
  if (!specs.ok()) return StepFailed(step.name(), specs.status());
  Values outputs;
  for (const auto& spec : *specs) outputs.push_back({spec, std::make_shared<const std::string>()});
  CommitStep(step, outputs);
}

void WorkflowRun::StepEnded(const proto::WorkflowStep& step, const absl::StatusOr<Values>& outputs) {
  if (!outputs.ok()) return StepFailed(step.name(), outputs.status());
  CommitStep(step, *outputs);
}

void WorkflowRun::StepFailed(const std::string& name, const absl::Status& status) {
  const auto& step = progress_.Step(name);
  const bool goes_on = progress_.state() == proto::RUN_RUNNING && Now(this) < client_.expiry;
  if (step.has_on_error() && goes_on) return CommitEnd(name, proto::STEP_FAILED, status);
  Failed(step, status);
}

void WorkflowRun::Failed(const proto::WorkflowStep& step, const absl::Status& status) {
  progress_.Fail(step.name(), status);
  Advance();
}

void WorkflowRun::CommitEnd(const std::string& step, proto::StepEnd end, const absl::Status& status) {
  proto::CommitStep command;
  command.set_run(options_.run);
  command.set_step(step);
  command.set_end(end);
  command.set_message(std::string(status.message()));
  if (end == proto::STEP_FAILED) command.set_code(WireCode(status));
  if (const auto again = results_.recomputed.find(step); again != results_.recomputed.end())
    command.set_recomputed(again->second);
  results_.committed.insert(step);
  session_.Tell(command, [this, step, outcome = cluster::OutcomeOf(command),
                          life = ownership_.life](const absl::StatusOr<proto::RunReply>& reply) {
    if (life != ownership_.life) return;
    const auto told = StatusOf(reply);
    if (absl::IsAborted(told)) return Yield();
    if (!told.ok()) return Failed(progress_.Step(step), told);
    progress_.End(step, outcome);
    Advance();
  });
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
  cluster::StepOutcome outcome;
  for (const auto& output : outputs) {
    outcome.outputs.insert(output.spec.name());
    results_.values.Set(absl::StrCat(step.name(), ".", output.spec.name()), output);
  }
  progress_.End(step.name(), std::move(outcome));
  Advance();
}

}  // namespace troupe::actors
