#include "cluster/workflow_schedule.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/wire_status.hpp"

namespace troupe::cluster {

WorkflowProgress::WorkflowProgress(const proto::WorkflowSpec& spec) : spec_(spec) {
  for (int i = 0; i < spec_.steps_size(); ++i) index_[spec_.steps(i).name()] = i;
  for (const proto::WorkflowStep& step : spec_.steps()) {
    std::set<std::string>& waits = waits_for_[step.name()];
    for (const proto::Binding& binding : step.inputs()) {
      const std::string from = ParseValue(binding.value()).step;
      if (!from.empty() && waits.insert(from).second) feeds_[from].push_back(step.name());
    }
    if (waits.empty()) ready_.insert(index_.at(step.name()));
  }
}

const proto::WorkflowStep& WorkflowProgress::Step(const std::string& name) const {
  const auto it = index_.find(name);
  TROUPE_CHECK(it != index_.end(), "the workflow has no such step");
  return spec_.steps(it->second);
}

void WorkflowProgress::Commit(const std::string& step) {
  const int index = [&] {
    const auto it = index_.find(step);
    TROUPE_CHECK(it != index_.end(), "the workflow has no such step");
    return it->second;
  }();
  if (!committed_.insert(step).second) return;
  ready_.erase(index);
  started_.erase(step);
  for (const std::string& next : feeds_[step]) {
    std::set<std::string>& waits = waits_for_.at(next);
    waits.erase(step);
    if (waits.empty() && !committed_.contains(next) && !started_.contains(next))
      ready_.insert(index_.at(next));
  }
}

std::vector<std::string> WorkflowProgress::TakeReady() {
  std::vector<std::string> steps;
  if (state() != proto::RUN_RUNNING) return steps;
  for (const int index : std::exchange(ready_, {})) {
    steps.push_back(spec_.steps(index).name());
    started_.insert(steps.back());
  }
  return steps;
}

void WorkflowProgress::Fail(const std::string& step, const absl::Status& status) {
  TROUPE_CHECK(!status.ok(), "a step failed without a reason");
  started_.erase(step);
  if (status_.ok()) {
    // The code as messages carry it, so that a full disk stays one.
    status_ = FromWire(WireCode(status), absl::StrCat("step '", step, "': ", status.message()));
  }
}

void WorkflowProgress::Cancel() {
  if (state() != proto::RUN_RUNNING) return;
  cancelled_ = true;
  status_ = absl::CancelledError("the run was cancelled");
}

void WorkflowProgress::Retry(const std::string& step) {
  if (started_.erase(step) == 1) ready_.insert(index_.at(step));
}

void WorkflowProgress::Reopen(const std::set<std::string>& steps) {
  for (const std::string& step : steps) {
    committed_.erase(step);
    started_.erase(step);
  }
  ready_.clear();
  for (const proto::WorkflowStep& step : spec_.steps()) {
    std::set<std::string>& waits = waits_for_.at(step.name());
    waits.clear();
    for (const proto::Binding& binding : step.inputs()) {
      const std::string from = ParseValue(binding.value()).step;
      if (!from.empty() && !committed_.contains(from)) waits.insert(from);
    }
    const bool open = !committed_.contains(step.name()) && !started_.contains(step.name());
    if (open && waits.empty()) ready_.insert(index_.at(step.name()));
  }
}

proto::RunState WorkflowProgress::state() const {
  if (cancelled_) return proto::RUN_CANCELLED;
  if (!status_.ok()) return proto::RUN_FAILED;
  return committed_.size() == index_.size() ? proto::RUN_SUCCEEDED : proto::RUN_RUNNING;
}

std::vector<std::string> OutputsToKeep(const proto::WorkflowSpec& spec, const std::string& step) {
  std::set<std::string> keep;
  for (const proto::WorkflowStep& other : spec.steps()) {
    if (other.name() == step && other.has_fan_out()) return {};
    for (const proto::Binding& binding : other.inputs()) {
      const ValueRef value = ParseValue(binding.value());
      if (value.step == step) keep.insert(value.name);
    }
  }
  for (const proto::Binding& binding : spec.outputs()) {
    const ValueRef value = ParseValue(binding.value());
    if (value.step == step) keep.erase(value.name);
  }
  return {keep.begin(), keep.end()};
}

std::set<std::string> StepsToRecompute(const proto::WorkflowSpec& spec,
                                       const std::set<std::string>& committed,
                                       const std::set<std::string>& lost) {
  std::map<std::string, const proto::WorkflowStep*> steps;
  std::vector<std::string> read;
  const auto reads = [&read](const auto& bindings) {
    for (const proto::Binding& binding : bindings) read.push_back(ParseValue(binding.value()).step);
  };
  for (const proto::WorkflowStep& step : spec.steps()) {
    steps[step.name()] = &step;
    if (!committed.contains(step.name())) reads(step.inputs());
  }
  reads(spec.outputs());
  std::set<std::string> again;
  while (!read.empty()) {
    const std::string step = std::move(read.back());
    read.pop_back();
    if (lost.contains(step) && again.insert(step).second) reads(steps.at(step)->inputs());
  }
  return again;
}

}  // namespace troupe::cluster
