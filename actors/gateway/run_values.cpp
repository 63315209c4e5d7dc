#include "actors/gateway/run_values.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "cluster/workflow_schedule.hpp"

namespace troupe::actors {

namespace {

std::string ShapeText(const proto::TensorSpec& spec) {
  return absl::StrCat(proto::DataType_Name(spec.type()), "[", absl::StrJoin(spec.shape(), ","), "]");
}

bool Fits(const proto::TensorSpec& declared, const proto::TensorSpec& given) {
  if (declared.type() != given.type() || declared.shape_size() != given.shape_size()) return false;
  for (int i = 0; i < declared.shape_size(); ++i)
    if (declared.shape(i) >= 0 && declared.shape(i) != given.shape(i)) return false;
  return true;
}

std::uint64_t MostCalls(const proto::WorkflowStep& step) {
  return step.for_each().most() > 0 ? step.for_each().most() : cluster::ForEachLimits::kMost;
}

}  // namespace

absl::StatusOr<RunValue> RunValues::Find(const std::string& name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) return absl::NotFoundError(absl::StrCat("the run has no value '", name, "' yet"));
  return it->second.value;
}

void RunValues::DropOutputs() {
  std::erase_if(values_, [](const auto& value) { return !cluster::ParseValue(value.first).step.empty(); });
}

RunValues::Numbers RunValues::NumbersOf(const proto::WorkflowStep& step) const {
  Numbers numbers;
  for (const auto& binding : step.inputs())
    if (const auto it = values_.find(binding.value()); it != values_.end())
      numbers[binding.value()] = it->second.number;
  return numbers;
}

void RunValues::Lost(const std::string& name, const Numbers& read) {
  const auto it = values_.find(name);
  const auto number = read.find(name);
  if (it != values_.end() && number != read.end() && number->second == it->second.number) FallBack(it);
}

void RunValues::FallBack(Values::iterator it) {
  auto& [value, number] = it->second;
  if (!value.IsKept() || !value.stored) {
    values_.erase(it);
    return;
  }
  value.Release();
  number = next_number_++;
}

void RunValues::DropRead(const proto::WorkflowSpec& spec, const cluster::StepEnds& ends) {
  std::set<std::string> wanted;
  const auto want = [&](const proto::Binding& binding) {
    cluster::ForEachValue(binding, [&](const std::string& value) { wanted.insert(value); });
  };
  for (const auto& step : spec.steps())
    if (ends.Find(step.name()) == nullptr) cluster::ForEachRead(step, want);
  for (const auto& binding : spec.outputs()) want(binding);
  const auto stand_ins = cluster::StepsThatStandIn(spec);
  for (auto it = values_.begin(); it != values_.end();) {
    const auto entry = it++;
    const auto& name = entry->first;
    const bool kept = entry->second.value.IsKept();
    if (kept && !wanted.contains(name) && !stand_ins.contains(cluster::ParseValue(name).step))
      FallBack(entry);
  }
}

std::set<std::string> RunValues::Missing(const proto::WorkflowSpec& spec,
                                         const std::set<std::string>& steps) const {
  std::set<std::string> missing;
  const auto look = [&](const proto::Binding& binding) {
    cluster::ForEachValue(binding, [&](const std::string& value) {
      const auto step = cluster::ParseValue(value).step;
      if (steps.contains(step) && !values_.contains(value)) missing.insert(step);
    });
  };
  for (const auto& step : spec.steps()) {
    cluster::ForEachRead(step, look);
    for (const auto& binding : step.on_error().values()) look(binding);
  }
  for (const auto& binding : spec.outputs()) look(binding);
  return missing;
}

std::vector<std::string> RunValues::NeededAsBytes(const proto::WorkflowStep& step) const {
  std::vector<std::string> names;
  for (const auto& binding : step.inputs()) {
    const auto it = values_.find(binding.value());
    if (it == values_.end()) continue;
    const RunValue& value = it->second.value;
    bool needed = value.OnlyInLog();
    if (value.IsKept() && step.has_for_each() && binding.tensor() == step.for_each().input()) {
      const auto dimension = step.for_each().dimension();
      const auto plan = cluster::PlanForEach(value.spec, dimension, MostCalls(step));
      needed = plan.ok() && (plan->outer > 1 || (!value.parts.empty() && dimension > 0));
    }
    if (needed && std::ranges::find(names, binding.value()) == names.end()) names.push_back(binding.value());
  }
  return names;
}

absl::Status RunValues::CheckInputs(const proto::WorkflowSpec& spec, const proto::InferRequest& request) {
  for (const auto& input : spec.inputs()) {
    const auto it = std::find_if(
        request.inputs().begin(), request.inputs().end(),
        [&](const proto::Tensor& tensor) { return tensor.spec().name() == input.spec().name(); });
    if (it == request.inputs().end()) {
      return absl::InvalidArgumentError(absl::StrCat("workflow '", spec.name(), "' needs the input '",
                                                     input.spec().name(), "' (", ShapeText(input.spec()),
                                                     ")"));
    }
    if (!Fits(input.spec(), it->spec())) {
      return absl::InvalidArgumentError(absl::StrCat("input '", input.spec().name(), "' of workflow '",
                                                     spec.name(), "' is ", ShapeText(it->spec()),
                                                     "; expected ", ShapeText(input.spec())));
    }
  }
  if (request.inputs_size() > spec.inputs_size()) {
    return absl::InvalidArgumentError(absl::StrCat("workflow '", spec.name(), "' has ", spec.inputs_size(),
                                                   " inputs; ", request.inputs_size(), " were sent"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<RunValue>>> RunValues::CallsOf(const proto::WorkflowStep& step) const {
  std::vector<RunValue> inputs;
  for (const auto& binding : step.inputs()) {
    TROUPE_ASSIGN_OR_RETURN(auto value, Find(binding.value()));
    value.spec.set_name(binding.tensor());
    inputs.push_back(std::move(value));
  }
  if (!step.has_for_each()) return std::vector<std::vector<RunValue>>{std::move(inputs)};
  const auto split = std::find_if(inputs.begin(), inputs.end(), [&](const RunValue& value) {
    return value.spec.name() == step.for_each().input();
  });
  if (split == inputs.end())
    return absl::InvalidArgumentError(
        absl::StrCat("it has no input '", step.for_each().input(), "', which its for_each names"));
  TROUPE_RETURN_IF_ERROR(cluster::CheckBytes(split->spec, split->Size()));
  TROUPE_ASSIGN_OR_RETURN(const auto plan,
                          cluster::PlanForEach(split->spec, step.for_each().dimension(), MostCalls(step)));
  std::vector<std::vector<RunValue>> calls;
  const auto position = split - inputs.begin();
  for (std::uint64_t part = 0; part < plan.parts; ++part) {
    auto call = inputs;
    auto& slice = call[static_cast<std::size_t>(position)];
    slice.spec.mutable_shape()->Assign(plan.part_shape.begin(), plan.part_shape.end());
    if (split->IsKept()) {
      slice = RowOf(*split, part, plan.piece, std::move(slice.spec));
    } else {
      slice.bytes = std::make_shared<const std::string>(cluster::SlicePart(*split->bytes, plan, part));
    }
    calls.push_back(std::move(call));
  }
  return calls;
}

absl::StatusOr<std::vector<RunValue>> RunValues::Join(const proto::WorkflowStep& step,
                                                      const std::vector<std::vector<RunValue>>& calls) {
  if (!step.has_for_each()) return calls.front();
  std::vector<RunValue> joined;
  for (std::size_t output = 0; output < calls.front().size(); ++output) {
    std::vector<RunValue> given;
    for (const auto& call : calls) {
      if (output >= call.size() || call[output].spec.name() != calls.front()[output].spec.name())
        return absl::InternalError("its calls gave different outputs");
      given.push_back(call[output]);
    }
    TROUPE_ASSIGN_OR_RETURN(auto value, JoinValues(given, step.for_each().dimension()));
    value.spec.set_name(given.front().spec.name());
    joined.push_back(std::move(value));
  }
  return joined;
}

}  // namespace troupe::actors
