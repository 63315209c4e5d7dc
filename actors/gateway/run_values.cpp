#include "actors/gateway/run_values.hpp"

#include <algorithm>
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

}  // namespace

absl::StatusOr<RunValue> RunValues::Find(const std::string& name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) return absl::NotFoundError(absl::StrCat("the run has no value '", name, "' yet"));
  return it->second;
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
        absl::StrCat("step '", step.name(), "' has no input '", step.for_each().input(), "'"));
  TROUPE_RETURN_IF_ERROR(cluster::CheckBytes(split->spec, split->bytes->size()));
  const std::uint64_t most =
      step.for_each().most() > 0 ? step.for_each().most() : cluster::ForEachLimits::kMost;
  TROUPE_ASSIGN_OR_RETURN(const auto plan,
                          cluster::PlanForEach(split->spec, step.for_each().dimension(), most));
  std::vector<std::vector<RunValue>> calls;
  const auto position = split - inputs.begin();
  for (std::uint64_t part = 0; part < plan.parts; ++part) {
    auto call = inputs;
    auto& slice = call[static_cast<std::size_t>(position)];
    slice.spec.mutable_shape()->Assign(plan.part_shape.begin(), plan.part_shape.end());
    slice.bytes = std::make_shared<const std::string>(cluster::SlicePart(*split->bytes, plan, part));
    calls.push_back(std::move(call));
  }
  return calls;
}

absl::StatusOr<std::vector<RunValue>> RunValues::Join(const proto::WorkflowStep& step,
                                                      const std::vector<std::vector<RunValue>>& calls) {
  if (!step.has_for_each()) return calls.front();
  std::vector<RunValue> joined;
  for (std::size_t output = 0; output < calls.front().size(); ++output) {
    std::vector<proto::TensorSpec> specs;
    std::vector<std::string_view> parts;
    for (const auto& call : calls) {
      if (output >= call.size() || call[output].spec.name() != calls.front()[output].spec.name())
        return absl::InternalError(
            absl::StrCat("the calls of step '", step.name(), "' gave different outputs"));
      specs.push_back(call[output].spec);
      parts.push_back(*call[output].bytes);
    }
    TROUPE_ASSIGN_OR_RETURN(auto spec, cluster::ConcatenatedSpec(specs, step.for_each().dimension()));
    spec.set_name(specs.front().name());
    TROUPE_ASSIGN_OR_RETURN(auto bytes, cluster::Concatenate(specs, parts, step.for_each().dimension()));
    joined.push_back({std::move(spec), std::make_shared<const std::string>(std::move(bytes))});
  }
  return joined;
}

}  // namespace troupe::actors
