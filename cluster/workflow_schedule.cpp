#include "cluster/workflow_schedule.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.hpp"
#include "base/wire_status.hpp"
#include "cluster/function_table.hpp"

namespace troupe::cluster {

namespace {

using State = Source::State;

// The outputs of the step that the workflow reads, when they are there.
std::set<std::string> ReadOf(const proto::WorkflowSpec& spec, const std::string& step) {
  std::set<std::string> read;
  const auto note = [&](const proto::Binding& binding) {
    ForEachValue(binding, [&](const std::string& value) {
      if (const auto ref = ParseValue(value); ref.step == step) read.insert(ref.name);
    });
  };
  for (const proto::WorkflowStep& reader : spec.steps()) {
    ForEachRead(reader, note);
    for (const proto::Binding& binding : reader.on_error().values()) note(binding);
    // A step that stands in for another one gives what is read of that one.
    if (reader.on_error().step() == step) read.merge(ReadOf(spec, reader.name()));
  }
  for (const proto::Binding& binding : spec.outputs()) note(binding);
  return read;
}

// Whether what decided the step's end is there: that of the step for which it stands in, its condition, and for a step that was not
// skipped its inputs.
bool HasGround(const proto::WorkflowStep& step, const StepEnds& ends) {
  const auto* const first = ends.StandsInFor(step.name());
  if (first != nullptr && ends.Find(first->name()) == nullptr) return false;
  if (step.has_when() && ends.SourceOf(step.when()).state == State::kWaits) return false;
  if (ends.Find(step.name())->end == proto::STEP_SKIPPED) return true;
  return std::ranges::none_of(step.inputs(), [&](const proto::Binding& binding) {
    return ends.SourceOf(binding).state == State::kWaits;
  });
}

}  // namespace

WorkflowProgress::WorkflowProgress(const proto::WorkflowSpec& spec)
    : spec_(std::make_shared<const proto::WorkflowSpec>(spec)), ends_(*spec_), deadlines_(*spec_) {
  for (int i = 0; i < spec_->steps_size(); ++i) index_[spec_->steps(i).name()] = i;
  for (const proto::WorkflowStep& step : spec_->steps()) {
    const auto reads = [&](const proto::Binding& binding) {
      ForEachValue(binding, [&](const std::string& value) {
        if (const std::string from = ParseValue(value).step; !from.empty()) feeds_[from].insert(step.name());
      });
    };
    ForEachRead(step, reads);
    // The step itself is looked at again when what stands in for it has ended.
    const auto& on_error = step.on_error();
    if (!on_error.step().empty()) {
      feeds_[step.name()].insert(on_error.step());
      feeds_[on_error.step()].insert(step.name());
    }
    for (const proto::Binding& binding : on_error.values())
      ForEachValue(binding, [&](const std::string& value) {
        if (const std::string from = ParseValue(value).step; !from.empty()) feeds_[from].insert(step.name());
      });
    look_.insert(index_.at(step.name()));
  }
}

const proto::WorkflowStep& WorkflowProgress::Step(const std::string& name) const {
  return spec_->steps(IndexOf(name));
}

int WorkflowProgress::IndexOf(const std::string& step) const {
  const auto it = index_.find(step);
  TROUPE_CHECK(it != index_.end(), "the workflow has no such step");
  return it->second;
}

void WorkflowProgress::End(const std::string& step, StepOutcome outcome) {
  look_.erase(IndexOf(step));
  started_.erase(step);
  if (ends_.Find(step) != nullptr) return;
  const bool failed = outcome.end == proto::STEP_FAILED;
  ends_.Set(step, std::move(outcome));
  if (failed) standing_in_.insert(step);
  LookAtReadersOf(step);
  Settle();
}

// Looks at the steps that read this step, and at those that read a step for which this one stands in.
void WorkflowProgress::LookAtReadersOf(const std::string& step) {
  std::vector<std::string> left = {step};
  std::set<std::string> seen = {step};
  while (!left.empty()) {
    const std::string from = std::move(left.back());
    left.pop_back();
    for (const std::string& reader : feeds_[from]) {
      const StepOutcome* ended = ends_.Find(reader);
      if (ended == nullptr && !started_.contains(reader)) look_.insert(IndexOf(reader));
      if (ended != nullptr && ended->end == proto::STEP_FAILED && seen.insert(reader).second)
        left.push_back(reader);
    }
  }
}

void WorkflowProgress::RunAgain(const std::string& step) {
  ends_.Clear(step);
  decided_.insert(step);
  look_.insert(IndexOf(step));
}

void WorkflowProgress::Reopen(const std::set<std::string>& steps) {
  for (const std::string& step : steps) {
    started_.erase(step);
    RunAgain(step);
  }
}

std::set<std::string> WorkflowProgress::Committed() const {
  std::set<std::string> committed;
  for (const proto::WorkflowStep& step : spec_->steps()) {
    const StepOutcome* outcome = ends_.Find(step.name());
    if (outcome != nullptr && outcome->end == proto::STEP_COMMITTED) committed.insert(step.name());
  }
  return committed;
}

std::vector<StepDecision> WorkflowProgress::Decide(const Truth& truth) {
  std::vector<StepDecision> decisions;
  if (state() != proto::RUN_RUNNING) return decisions;
  for (const int index : std::exchange(look_, {})) {
    const proto::WorkflowStep& step = spec_->steps(index);
    StepDecision decision = Judge(step, truth);
    if (decision.kind == StepDecision::Kind::kWait) continue;
    started_.insert(step.name());
    decisions.push_back(std::move(decision));
  }
  return decisions;
}

// In a fixed order: whether the step stands in for another one that has failed, its condition, its inputs. What
// is settled later cannot change what is decided, so it does not matter in which order steps end.
StepDecision WorkflowProgress::Judge(const proto::WorkflowStep& step, const Truth& truth) const {
  const auto wait = [&] { return StepDecision{.kind = StepDecision::Kind::kWait, .step = step.name()}; };
  const auto skip = [&](std::string why) {
    return StepDecision{
        .kind = StepDecision::Kind::kSkip, .step = step.name(), .status = absl::CancelledError(why)};
  };
  const bool decided = decided_.contains(step.name());
  if (const auto* first = ends_.StandsInFor(step.name()); first != nullptr && !decided) {
    const StepOutcome* outcome = ends_.Find(first->name());
    if (outcome == nullptr) return wait();
    if (outcome->end == proto::STEP_COMMITTED)
      return skip(absl::StrCat("step '", first->name(), "', for which it stands in, did not fail"));
    if (outcome->end == proto::STEP_SKIPPED)
      return skip(absl::StrCat("step '", first->name(), "', for which it stands in, was skipped"));
  }
  if (step.has_when() && !decided) {
    const Source source = ends_.SourceOf(step.when());
    if (source.state == State::kWaits) return wait();
    if (source.state == State::kAbsent)
      return skip(absl::StrCat("its 'when' reads '", step.when().value(), "', and ", source.why));
    const absl::StatusOr<bool> true_or_false = truth(source.value);
    if (!true_or_false.ok())
      return {.kind = StepDecision::Kind::kFail, .step = step.name(), .status = true_or_false.status()};
    if (!*true_or_false) return skip(absl::StrCat("its 'when', ", source.value, ", is 0"));
  }
  std::string absent;
  for (const proto::Binding& binding : step.inputs()) {
    const Source source = ends_.SourceOf(binding);
    if (source.state == State::kWaits) return wait();
    if (source.state == State::kAbsent && absent.empty())
      absent = absl::StrCat("its input '", binding.tensor(), "' is absent: ", source.why);
  }
  if (!absent.empty()) return skip(std::move(absent));
  return {.kind = StepDecision::Kind::kRun, .step = step.name()};
}

proto::WorkflowStep WorkflowProgress::Bound(const std::string& name) const {
  proto::WorkflowStep step = Step(name);
  for (proto::Binding& binding : *step.mutable_inputs()) {
    binding.set_value(ends_.SourceOf(binding).value);
    binding.clear_fallbacks();
  }
  return step;
}

void WorkflowProgress::Fail(const std::string& step, const absl::Status& status) {
  TROUPE_CHECK(!status.ok(), "a step failed without a reason");
  started_.erase(step);
  if (status_.ok()) {
    // The code as messages carry it, so that a full disk stays one.
    status_ = FromWire(WireCode(status), absl::StrCat("step '", step, "': ", status.message()));
  }
}

void WorkflowProgress::Settle() {
  for (auto it = standing_in_.begin(); it != standing_in_.end();) {
    const Source stand_in = ends_.StandIn(Step(*it));
    if (stand_in.state == State::kWaits) {
      ++it;
      continue;
    }
    const StepOutcome& failed = *ends_.Find(*it);
    if (stand_in.state == State::kAbsent) {
      Fail(*it,
           FromWire(failed.code, absl::StrCat(failed.message, "; nothing stands in for it: ", stand_in.why)));
    }
    it = standing_in_.erase(it);
  }
}

void WorkflowProgress::Cancel() {
  if (state() != proto::RUN_RUNNING) return;
  cancelled_ = true;
  status_ = absl::CancelledError("the run was cancelled");
}

proto::RunState WorkflowProgress::state() const {
  if (cancelled_) return proto::RUN_CANCELLED;
  if (!status_.ok()) return proto::RUN_FAILED;
  return ends_.size() == index_.size() && standing_in_.empty() ? proto::RUN_SUCCEEDED : proto::RUN_RUNNING;
}

std::set<std::string> StepsThatStandIn(const proto::WorkflowSpec& spec) {
  std::set<std::string> steps;
  for (const proto::WorkflowStep& step : spec.steps()) {
    if (!step.on_error().step().empty()) steps.insert(step.on_error().step());
    for (const proto::Binding& binding : step.on_error().values())
      ForEachValue(binding, [&](const std::string& value) { steps.insert(ParseValue(value).step); });
  }
  return steps;
}

std::vector<std::string> OutputsToKeep(const proto::WorkflowSpec& spec, const std::string& name) {
  // What stands in for another step's outputs may be what the workflow gives.
  if (StepsThatStandIn(spec).contains(name)) return {};
  std::set<std::string> keep;
  std::set<std::string> here;
  const auto note = [&](const proto::Binding& binding, std::set<std::string>& outputs) {
    ForEachValue(binding, [&](const std::string& value) {
      const ValueRef read = ParseValue(value);
      if (read.step == name) outputs.insert(read.name);
    });
  };
  for (const proto::WorkflowStep& step : spec.steps()) {
    // Only along the first dimension do parts follow each other.
    if (step.name() == name && (step.for_each().dimension() > 0 || !step.workflow().empty())) return {};
    for (const proto::Binding& binding : step.inputs()) note(binding, step.workflow().empty() ? keep : here);
    if (step.has_when()) note(step.when(), here);
  }
  for (const proto::Binding& binding : spec.outputs()) note(binding, here);
  for (const std::string& output : here) keep.erase(output);
  return {keep.begin(), keep.end()};
}

absl::Status CheckGiven(const proto::WorkflowSpec& spec, const proto::WorkflowStep& step,
                        const proto::FunctionKey& called, const std::set<std::string>& given) {
  if (step.function().empty()) return absl::OkStatus();
  for (const std::string& output : ReadOf(spec, step.name())) {
    if (given.contains(output)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(called), " gave no output '", output,
                     "', which the workflow reads; its outputs are: ", absl::StrJoin(given, ", "),
                     "; submit the workflow anew for this version, or name a version that fits in the step"));
  }
  return absl::OkStatus();
}

std::set<std::string> StepsToRecompute(const proto::WorkflowSpec& spec, const StepEnds& ends,
                                       const std::set<std::string>& lost) {
  std::vector<std::string> read;
  // The value that counts; while that is open, each one that may come to count.
  const std::function<void(const proto::Binding&)> reads = [&](const proto::Binding& binding) {
    const Source source = ends.SourceOf(binding);
    if (source.state == State::kThere) return read.push_back(ParseValue(source.value).step);
    ForEachValue(binding, [&](const std::string& value) {
      const std::string from = ParseValue(value).step;
      const StepOutcome* outcome = ends.Find(from);
      if (outcome == nullptr || outcome->end == proto::STEP_SKIPPED) return;
      if (outcome->end == proto::STEP_COMMITTED) return read.push_back(from);
      const auto& on_error = ends.Step(from)->on_error();
      if (!on_error.step().empty()) read.push_back(on_error.step());
      for (const proto::Binding& stand_in : on_error.values()) reads(stand_in);
    });
  };
  for (const proto::WorkflowStep& step : spec.steps())
    if (ends.Find(step.name()) == nullptr) ForEachRead(step, reads);
  for (const proto::Binding& binding : spec.outputs()) reads(binding);
  std::set<std::string> again;
  while (!read.empty()) {
    const std::string name = std::move(read.back());
    read.pop_back();
    if (!lost.contains(name) || !again.insert(name).second) continue;
    // That it runs was decided before: only its inputs are read again.
    for (const proto::Binding& binding : ends.Step(name)->inputs()) reads(binding);
  }
  return again;
}

std::set<std::string> StepsWithoutGround(const proto::WorkflowSpec& spec, const StepEnds& ends) {
  std::set<std::string> groundless;
  StepEnds left = ends;
  for (bool found = true; found;) {
    found = false;
    for (const proto::WorkflowStep& step : spec.steps()) {
      if (left.Find(step.name()) == nullptr || HasGround(step, left)) continue;
      left.Clear(step.name());
      groundless.insert(step.name());
      found = true;
    }
  }
  return groundless;
}

}  // namespace troupe::cluster
