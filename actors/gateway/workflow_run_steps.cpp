// A run's steps, and what they give, committed before a step that needs it begins.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/time.hpp"
#include "actors/gateway/workflow_run_actor.hpp"
#include "cluster/step_durability.hpp"

namespace troupe::actors {

void WorkflowRun::Advance() {
  if (progress_.state() != proto::RUN_RUNNING && progress_.state() != proto::RUN_PENDING) return Finish();
  for (const auto& step : progress_.TakeReady()) RunStep(progress_.Step(step));
}

void WorkflowRun::RunStep(const proto::WorkflowStep& step) {
  if (const auto names = results_.values.NeededAsBytes(step); !names.empty()) return FetchFor(step, names);
  const auto calls = results_.values.CallsOf(step);
  if (!calls.ok()) return Failed(step, calls.status());
  const Time until = step.timeout_ns() > 0 ? std::min(client_.expiry, Now(this) + Duration(step.timeout_ns()))
                                           : client_.expiry;
  step_calls_.Begin(step, *calls, until, cluster::OutputsToKeep(progress_.spec(), step.name()));
}

void WorkflowRun::FetchFor(const proto::WorkflowStep& step, const std::vector<std::string>& names) {
  auto open = std::make_shared<std::size_t>(names.size());
  auto failed = std::make_shared<absl::Status>();
  auto lost = std::make_shared<std::set<std::string>>();
  const auto came = [this, step, open, failed, lost, life = ownership_.life](const std::string& name,
                                                                             absl::StatusOr<RunValue> value) {
    if (life != ownership_.life) return;
    if (absl::IsDataLoss(value.status()) || absl::IsNotFound(value.status())) {
      for (const auto& binding : step.inputs())
        if (binding.value() == name) lost->insert(binding.tensor());
    }
    failed->Update(value.status());
    if (value.ok()) results_.values.Set(name, *std::move(value));
    if (--*open > 0) return;
    if (!lost->empty()) return InputsLost(step, *lost);
    failed->ok() ? RunStep(step) : Failed(step, *failed);
  };
  for (const auto& name : names) {
    const auto value = *results_.values.Find(name);
    if (value.kept) {
      tensors_.FetchKept(value,
                         [came, name](absl::StatusOr<RunValue> bytes) { came(name, std::move(bytes)); });
      continue;
    }
    RunTensors::Stored stored;
    *stored.Add() = *value.stored;
    Load(stored, [came, name](absl::StatusOr<Values> values) {
      came(name, values.ok() ? absl::StatusOr<RunValue>(values->front()) : values.status());
    });
  }
}

void WorkflowRun::InputsLost(const proto::WorkflowStep& step, const std::set<std::string>& inputs) {
  if (progress_.state() != proto::RUN_RUNNING) return Failed(step, absl::CancelledError("the run has ended"));
  for (const auto& binding : step.inputs())
    if (inputs.contains(binding.tensor())) results_.values.FallBack(binding.value());
  // Another step that read them may have had them computed anew already.
  auto again = cluster::StepsToRecompute(progress_.spec(), progress_.committed(),
                                         results_.values.Missing(progress_.spec(), progress_.committed()));
  for (const auto& name : again) {
    if (++results_.recomputed[name] > options_.most_recomputed)
      return Failed(progress_.Step(name), LostTooOften("the worker that kept it was lost"));
    results_.committed.erase(name);
  }
  again.insert(step.name());
  progress_.Reopen(again);
  Advance();
}

void WorkflowRun::StepEnded(const proto::WorkflowStep& step,
                            const absl::StatusOr<StepCalls::Outcome>& outcome) {
  if (!outcome.ok()) return Failed(step, outcome.status());
  std::uint64_t kept = 0;
  for (const auto& output : outcome->outputs) kept += output.kept ? output.kept->length() : 0;
  if (kept > 0 && cluster::WritesKept(outcome->took, kept)) return Write(step, *outcome);
  CommitStep(step, outcome->outputs, outcome->outputs);
}

void WorkflowRun::Write(const proto::WorkflowStep& step, const StepCalls::Outcome& outcome) {
  auto open = std::make_shared<std::size_t>(1);
  auto failed = std::make_shared<absl::Status>();
  auto written = std::make_shared<Values>(outcome.outputs);
  const auto close = [this, step, outcome, open, failed, written,
                      life = ownership_.life](const absl::Status& status) {
    if (life != ownership_.life) return;
    failed->Update(status);
    if (--*open > 0) return;
    // It was lost before it was written: the step is run again.
    if (absl::IsDataLoss(*failed) && progress_.state() == proto::RUN_RUNNING) {
      progress_.Retry(step.name());
      return Advance();
    }
    failed->ok() ? CommitStep(step, outcome.outputs, *written) : Failed(step, *failed);
  };
  for (auto& value : *written) {
    if (!value.kept) continue;
    ++*open;
    tensors_.FetchKept(value, [close, &value, written](absl::StatusOr<RunValue> bytes) {
      if (bytes.ok()) value = *std::move(bytes);
      close(bytes.status());
    });
  }
  close(absl::OkStatus());
}

void WorkflowRun::Failed(const proto::WorkflowStep& step, const absl::Status& status) {
  progress_.Fail(step.name(), status);
  step_calls_.Cancel();  // of the steps beside it, which are not needed any more
  Advance();
}

// Where the outputs are is durable before a step that needs them begins; and they are, if they are written.
void WorkflowRun::CommitStep(const proto::WorkflowStep& step, const Values& outputs, const Values& written) {
  Store(written, [this, step, outputs, life = ownership_.life](absl::StatusOr<RunTensors::Stored> stored) {
    if (life != ownership_.life) return;
    if (!stored.ok()) return Failed(step, stored.status());
    if (progress_.state() != proto::RUN_RUNNING)
      return Failed(step, absl::CancelledError("the run has ended"));
    proto::CommitStep command;
    command.set_run(options_.run);
    command.set_step(step.name());
    auto committed = outputs;
    for (std::size_t i = 0; i < committed.size(); ++i)
      if (const auto& one = (*stored)[static_cast<int>(i)]; committed[i].kept && !one.has_kept())
        committed[i].stored = one;
    *command.mutable_outputs() = *std::move(stored);
    if (const auto again = results_.recomputed.find(step.name()); again != results_.recomputed.end())
      command.set_recomputed(again->second);
    results_.committed.insert(step.name());
    session_.Tell(std::move(command), [this, step, outputs = std::move(committed),
                                       life](const absl::StatusOr<proto::RunReply>& reply) {
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
  results_.values.DropRead(progress_.spec(), progress_.committed());
  Advance();
}

}  // namespace troupe::actors
