// A run's steps: which of them run, and how each ends. That is durable before a step that reads it is decided, but for short
// steps without a state, whose ends the log gets in order (GoesOnUnwritten).
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/time.hpp"
#include "actors/gateway/view_cell.hpp"
#include "actors/gateway/workflow_run_actor.hpp"
#include "cluster/step_durability.hpp"
#include "cluster/step_retry.hpp"
#include "cluster/workflow_schedule.hpp"
#include "cluster/workflows/condition.hpp"

namespace troupe::actors {

using Decided = cluster::StepDecision::Kind;

namespace {

// Whether it is known that the step calls a function without a state. `known`: null for nothing.
bool IsStateless(const proto::WorkflowStep& step, const ViewCell* known) {
  if (step.function().empty() || known == nullptr) return false;
  proto::FunctionKey key;
  key.set_name(step.function());
  key.set_version(step.version());
  const auto view = known->Get();
  const auto* const function = view->functions().Find(key);
  return function != nullptr && function->state().empty();
}

// More calls than that of one for_each have their outputs joined here: each part of an input is told to its reader.
constexpr std::size_t kMostParts = 1024;

// What the calls of a for_each give stays in parts, which the step that reads them takes as one input: where every GPU can.
std::vector<std::string> OutputsToKeep(const proto::WorkflowSpec& spec, const proto::WorkflowStep& step,
                                       std::size_t calls, const ViewCell* known) {
  const bool parts = calls <= kMostParts && known != nullptr && known->Get()->take_input_parts();
  if (step.has_for_each() && !parts) return {};
  return cluster::OutputsToKeep(spec, step.name());
}

}  // namespace

void WorkflowRun::Advance() {
  const auto truth = [this](const std::string& name) -> absl::StatusOr<bool> {
    const auto value = results_.values.Find(name);
    if (!value.ok()) return value.status();
    if (value->bytes == nullptr) return absl::InternalError(absl::StrCat("'", name, "' is not here"));
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
  if (!ownership_.logged && !IsStateless(step, options_.view.get()))
    return session_.WhenTied([this, step, life = ownership_.life](absl::Status status) {
      if (life != ownership_.life) return;
      if (progress_.state() != proto::RUN_RUNNING) status.Update(absl::CancelledError("the run has ended"));
      status.ok() ? RunStep(step) : Failed(step, status);
    });
  const auto bound = progress_.Bound(step.name());
  results_.read[step.name()] = results_.values.NumbersOf(bound);
  if (const auto names = results_.values.NeededAsBytes(bound); !names.empty()) return FetchFor(bound, names);
  const auto calls = results_.values.CallsOf(bound);
  if (!calls.ok()) return StepFailed(step.name(), calls.status());
  if (!calls->empty())
    return step_calls_.Begin(bound, *calls, progress_.Deadline(step.name(), Now(this), client_.expiry),
                             OutputsToKeep(progress_.spec(), step, calls->size(), options_.view.get()));
  const auto specs = cluster::OutputsOfNoCall(step);
  if (!specs.ok()) return StepFailed(step.name(), specs.status());
  Values outputs;
  for (const auto& spec : *specs)
    outputs.push_back({.spec = spec, .bytes = std::make_shared<const std::string>()});
  CommitStep(step, outputs, outputs, false);
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
    if (progress_.state() != proto::RUN_RUNNING) failed->Update(absl::CancelledError("the run has ended"));
    failed->ok() ? RunStep(step) : StepFailed(step.name(), *failed);
  };
  for (const auto& name : names) {
    const auto value = *results_.values.Find(name);
    if (value.IsKept()) {
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
    if (inputs.contains(binding.tensor())) results_.values.Lost(binding.value(), results_.read[step.name()]);
  // The values may be there again already, for another step that read them.
  auto again = cluster::StepsToRecompute(progress_.spec(), progress_.ends(),
                                         results_.values.Missing(progress_.spec(), progress_.Committed()));
  for (const auto& name : again) {
    if (++results_.recomputed[name] > options_.most_recomputed)
      return Failed(step,
                    LostTooOften(absl::StrCat("the result of step '", name, "'"), "what kept it was lost"));
    results_.committed.erase(name);
  }
  again.insert(step.name());
  progress_.Reopen(again);
  Advance();
}

void WorkflowRun::StepEnded(const proto::WorkflowStep& step,
                            const absl::StatusOr<StepCalls::Outcome>& outcome) {
  if (!outcome.ok()) return StepFailed(step.name(), outcome.status());
  std::set<std::string> given;
  for (const auto& output : outcome->outputs) given.insert(output.spec.name());
  if (const auto status = cluster::CheckGiven(progress_.spec(), step, outcome->called, given); !status.ok())
    return StepFailed(step.name(), status);
  std::uint64_t kept = 0;
  for (const auto& output : outcome->outputs) kept += output.KeptBytes();
  if (kept > 0 && options_.logged && cluster::WritesKept(step.durable(), outcome->took, kept))
    return Write(step, *outcome);
  CommitStep(step, outcome->outputs, outcome->outputs, GoesOnUnwritten(step, outcome->took));
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
      progress_.Reopen({step.name()});
      return Advance();
    }
    failed->ok() ? CommitStep(step, outcome.outputs, *written, false) : Failed(step, *failed);
  };
  for (auto& value : *written) {
    if (!value.IsKept()) continue;
    ++*open;
    tensors_.FetchKept(value, [close, &value, written](absl::StatusOr<RunValue> bytes) {
      const auto status = bytes.status();
      if (status.ok()) value = *std::move(bytes);
      close(status);
    });
  }
  close(absl::OkStatus());
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
    const auto told = StatusIn(reply);
    if (absl::IsAborted(told)) return Yield();
    if (!told.ok()) return Failed(progress_.Step(step), told);
    progress_.End(step, outcome);
    Advance();
  });
}

bool WorkflowRun::GoesOnUnwritten(const proto::WorkflowStep& step, Duration took) const {
  const bool away = ownership_.logged && !session_.registered();
  return !away && cluster::MayGoOnUnwritten(step.durable(), took) && IsStateless(step, options_.view.get());
}

// Where the outputs are is durable before a step that needs them begins, unless the run goes on; and they are, if they are
// written.
void WorkflowRun::CommitStep(const proto::WorkflowStep& step, const Values& outputs, const Values& written,
                             bool goes_on) {
  Store(written,
        [this, step, outputs, goes_on, life = ownership_.life](absl::StatusOr<RunTensors::Stored> stored) {
          if (life != ownership_.life) return;
          if (!stored.ok()) return Failed(step, stored.status());
          if (progress_.state() != proto::RUN_RUNNING)
            return Failed(step, absl::CancelledError("the run has ended"));
          proto::CommitStep command;
          command.set_run(options_.run);
          command.set_step(step.name());
          auto committed = outputs;
          for (std::size_t i = 0; i < committed.size(); ++i)
            if (const auto& one = (*stored)[static_cast<int>(i)]; committed[i].IsKept() && !one.has_kept())
              committed[i].stored = one;
          *command.mutable_outputs() = *std::move(stored);
          if (const auto again = results_.recomputed.find(step.name()); again != results_.recomputed.end())
            command.set_recomputed(again->second);
          results_.committed.insert(step.name());
          session_.Tell(std::move(command), [this, step, goes_on, outputs = committed,
                                             life](const absl::StatusOr<proto::RunReply>& reply) {
            if (life != ownership_.life) return;
            const auto status = StatusIn(reply);
            if (!status.ok()) return NotCommitted(step, status);
            if (!goes_on) Committed(step, outputs);
          });
          if (!goes_on) return;
          // At once, but for a step that was begun ahead of the run's start.
          session_.WhenTied([this, step, committed, life](const absl::Status& status) {
            if (life == ownership_.life && status.ok()) Committed(step, committed);
          });
        });
}

// What goes on behind the step may have ended the run already: then the log's answer to that end counts.
void WorkflowRun::NotCommitted(const proto::WorkflowStep& step, const absl::Status& status) {
  if (absl::IsAborted(status)) return Yield();
  if (end_.finish == nullptr) Failed(step, status);
}

void WorkflowRun::Committed(const proto::WorkflowStep& step, const Values& outputs) {
  cluster::StepOutcome outcome;
  for (const auto& output : outputs) {
    outcome.outputs.insert(output.spec.name());
    results_.values.Set(absl::StrCat(step.name(), ".", output.spec.name()), output);
  }
  progress_.End(step.name(), std::move(outcome));
  results_.values.DropRead(progress_.spec(), progress_.ends());
  Advance();
}

absl::Status WorkflowRun::LostTooOften(const std::string& what, const std::string& why) const {
  return absl::DataLossError(absl::StrCat(what, " was lost again after it had been computed anew ",
                                          options_.most_recomputed, " times (", why, ")"));
}

void WorkflowRun::Store(const Values& values, RunTensors::Done<RunTensors::Stored> done) {
  tensors_.Store(values, [this, values, done](absl::StatusOr<RunTensors::Stored> stored) {
    if (stored.ok() || session_.registered()) return done(std::move(stored));
    session_.WhenTied([this, values, done](const absl::Status& status) {
      status.ok() ? Store(values, done) : done(status);
    });
  });
}

void WorkflowRun::Load(const RunTensors::Stored& stored, RunTensors::Done<Values> done) {
  tensors_.Load(stored, [this, stored, done](absl::StatusOr<Values> values) {
    if (values.ok() || session_.registered()) return done(std::move(values));
    session_.WhenTied([this, stored, done](const absl::Status& status) {
      status.ok() ? Load(stored, done) : done(status);
    });
  });
}

}  // namespace troupe::actors
