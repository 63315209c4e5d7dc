// STEP ENDS: how the steps of one run have ended so far, and which of the run's tensors a value of the workflow is, given
// that. Everything follows from the spec and from what the run log keeps, so each gateway that goes on with a
// run finds the same.
//
// A value is a workflow input, which is always there, or STEP.OUTPUT:
//   the step was committed       its output is the value; if it gave no such output, the value is absent
//   the step was skipped         the value is absent
//   the step failed for good     the value is what its on_error says: the same output of the step that stands in, or
//                                the value that stands in for this output
// A binding lists values; the first that is there counts, and the run waits for those before it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "cluster/workflows/value_ref.hpp"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

struct StepOutcome {
  proto::StepEnd end = proto::STEP_COMMITTED;
  std::set<std::string> outputs{};  // of a committed step: their names
  std::string message{};            // why it was skipped, or how it failed
  int code = 0;                     // of its failure
};

// As the run log keeps it.
[[nodiscard]] StepOutcome OutcomeOf(const proto::CommitStep& step);

struct Source {
  enum class State { kWaits, kThere, kAbsent };
  State state = State::kWaits;
  std::string value{};  // kThere: the workflow input, or the "step.output" of a committed step
  std::string why{};    // kAbsent
};

class StepEnds {
 public:
  // `spec` has been validated, and outlives it.
  explicit StepEnds(const proto::WorkflowSpec& spec);

  // The first end of a step counts.
  void Set(const std::string& step, StepOutcome outcome) { ends_.try_emplace(step, std::move(outcome)); }
  // A step that is run again, because its outputs are lost, has not ended.
  void Clear(const std::string& step) { ends_.erase(step); }
  // Null: it has not ended.
  [[nodiscard]] const StepOutcome* Find(const std::string& step) const;
  [[nodiscard]] std::size_t size() const { return ends_.size(); }

  [[nodiscard]] Source SourceOf(const std::string& value) const;
  [[nodiscard]] Source SourceOf(const proto::Binding& binding) const;
  // The step whose failure this one stands in for; null: none.
  [[nodiscard]] const proto::WorkflowStep* StandsInFor(const std::string& step) const;
  // Of a step that failed: whether what stands in for all its outputs is there. kAbsent: why it is not.
  [[nodiscard]] Source StandIn(const proto::WorkflowStep& failed) const;
  // The step that `name` names; null: none.
  [[nodiscard]] const proto::WorkflowStep* Step(const std::string& name) const;

 private:
  std::map<std::string, const proto::WorkflowStep*> steps_;
  std::map<std::string, const proto::WorkflowStep*> stands_in_for_;
  std::map<std::string, StepOutcome> ends_;
};

// The values of a binding, in the order in which they are tried.
template <class Visit>
void ForEachValue(const proto::Binding& binding, Visit visit) {
  if (!binding.value().empty()) visit(binding.value());
  for (const std::string& value : binding.fallbacks()) visit(value);
}
// The bindings that a step reads before it runs: its condition, if it has one, and its inputs.
template <class Visit>
void ForEachRead(const proto::WorkflowStep& step, Visit visit) {
  if (step.has_when()) visit(step.when());
  for (const proto::Binding& binding : step.inputs()) visit(binding);
}

}  // namespace troupe::cluster
