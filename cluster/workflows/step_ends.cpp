#include "cluster/workflows/step_ends.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::cluster {

StepOutcome OutcomeOf(const proto::CommitStep& step) {
  StepOutcome outcome{.end = step.end(), .message = step.message(), .code = step.code()};
  for (const auto& output : step.outputs()) outcome.outputs.insert(output.spec().name());
  return outcome;
}

StepEnds::StepEnds(const proto::WorkflowSpec& spec) {
  for (const auto& step : spec.steps()) {
    steps_.emplace(step.name(), &step);
    if (!step.on_error().step().empty()) stands_in_for_.emplace(step.on_error().step(), &step);
  }
}

const StepOutcome* StepEnds::Find(const std::string& step) const {
  const auto it = ends_.find(step);
  return it == ends_.end() ? nullptr : &it->second;
}

const proto::WorkflowStep* StepEnds::Step(const std::string& name) const {
  const auto it = steps_.find(name);
  return it == steps_.end() ? nullptr : it->second;
}

const proto::WorkflowStep* StepEnds::StandsInFor(const std::string& step) const {
  const auto it = stands_in_for_.find(step);
  return it == stands_in_for_.end() ? nullptr : it->second;
}

Source StepEnds::SourceOf(const std::string& value) const {
  const ValueRef ref = ParseValue(value);
  if (ref.step.empty()) return {Source::State::kThere, value, {}};
  const StepOutcome* outcome = Find(ref.step);
  const proto::WorkflowStep* step = Step(ref.step);
  if (outcome == nullptr || step == nullptr) return {};
  switch (outcome->end) {
    case proto::STEP_COMMITTED:
      if (outcome->outputs.contains(ref.name)) return {Source::State::kThere, value, {}};
      return {Source::State::kAbsent, {}, absl::StrCat("step '", ref.step, "' gave no '", ref.name, "'")};
    case proto::STEP_FAILED: {
      if (!step->on_error().step().empty())
        return SourceOf(absl::StrCat(step->on_error().step(), ".", ref.name));
      const auto& values = step->on_error().values();
      const auto it = std::find_if(values.begin(), values.end(),
                                   [&](const auto& binding) { return binding.tensor() == ref.name; });
      if (it != values.end()) return SourceOf(*it);
      return {Source::State::kAbsent,
              {},
              absl::StrCat("step '", ref.step, "' failed, and nothing stands in for '", ref.name, "'")};
    }
    default:
      return {Source::State::kAbsent, {}, absl::StrCat("step '", ref.step, "' was skipped")};
  }
}

Source StepEnds::SourceOf(const proto::Binding& binding) const {
  Source last;
  bool settled = false;
  ForEachValue(binding, [&](const std::string& value) {
    if (settled) return;
    last = SourceOf(value);
    settled = last.state != Source::State::kAbsent;
  });
  return last;
}

Source StepEnds::StandIn(const proto::WorkflowStep& failed) const {
  if (const auto& name = failed.on_error().step(); !name.empty()) {
    const StepOutcome* outcome = Find(name);
    if (outcome == nullptr) return {};
    if (outcome->end == proto::STEP_SKIPPED)
      return {
          Source::State::kAbsent, {}, absl::StrCat("step '", name, "', which stands in for it, was skipped")};
    const auto* step = Step(name);
    if (outcome->end == proto::STEP_FAILED && step != nullptr) return StandIn(*step);
    return {Source::State::kThere, name, {}};
  }
  Source all{Source::State::kThere, {}, {}};
  for (const auto& binding : failed.on_error().values()) {
    const Source source = SourceOf(binding);
    if (source.state != Source::State::kThere) all = source;
    if (source.state == Source::State::kWaits) break;
  }
  return all;
}

}  // namespace troupe::cluster
