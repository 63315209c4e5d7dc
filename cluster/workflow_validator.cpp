#include "cluster/workflow_validator.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/function_signature.hpp"

namespace troupe::cluster {

namespace {

std::string Type(proto::DataType type) {
  return proto::DataType_Name(type);
}
std::string Shape(const proto::TensorSpec& spec) {
  return absl::StrCat("[", absl::StrJoin(spec.shape(), ","), "]");
}

const proto::TensorSpec* FindTensor(const google::protobuf::RepeatedPtrField<proto::TensorSpec>& specs,
                                    const std::string& name) {
  const auto it =
      std::find_if(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name() == name; });
  return it == specs.end() ? nullptr : &*it;
}

std::string Names(const google::protobuf::RepeatedPtrField<proto::TensorSpec>& specs) {
  return absl::StrJoin(specs, ", ", [](std::string* out, const auto& spec) { out->append(spec.name()); });
}

bool ShapesFit(const proto::TensorSpec& a, const proto::TensorSpec& b) {
  if (a.shape_size() != b.shape_size()) return false;
  for (int i = 0; i < a.shape_size(); ++i) {
    if (a.shape(i) != b.shape(i) && a.shape(i) != -1 && b.shape(i) != -1) return false;
  }
  return true;
}

class Validator {
 public:
  Validator(const proto::WorkflowSpec& spec, const FunctionTable& functions)
      : spec_(spec), functions_(functions) {}

  absl::StatusOr<proto::WorkflowRecord> Run() {
    CollectNames();
    for (const proto::WorkflowStep& step : spec_.steps()) CheckStep(step);
    CheckCycles();
    proto::WorkflowRecord record;
    *record.mutable_spec() = spec_;
    CheckOutputs(record);
    CheckUnused();
    if (!errors_.empty()) return WorkflowErrors(spec_.name(), std::move(errors_));
    return record;
  }

 private:
  void Error(std::uint32_t line, std::string message) { errors_.push_back({line, std::move(message)}); }

  void CollectNames() {
    if (spec_.steps().empty()) Error(0, "there are no steps");
    for (const proto::WorkflowInput& input : spec_.inputs()) {
      if (!inputs_.emplace(input.spec().name(), &input).second) {
        Error(input.line(), absl::StrCat("two inputs are called '", input.spec().name(), "'"));
      }
    }
    for (const proto::WorkflowStep& step : spec_.steps()) {
      if (!steps_.emplace(step.name(), &step).second) {
        Error(step.line(), absl::StrCat("two steps are called '", step.name(), "'"));
      }
      proto::FunctionKey key;
      key.set_name(step.function());
      key.set_version(step.version());
      const proto::FunctionRecord* record = functions_.Find(key);
      if (record == nullptr) {
        Error(step.line(), absl::StrCat("step '", step.name(), "': there is no ", Describe(key)));
      } else {
        records_[step.name()] = record;
      }
    }
  }

  // What a value is, or nothing when it is none, or of a step whose function is unknown (told already).
  std::optional<proto::TensorSpec> Resolve(const proto::Binding& binding) {
    const ValueRef ref = ParseValue(binding.value());
    if (ref.step.empty()) return ResolveInput(binding, ref.name);
    const auto step = steps_.find(ref.step);
    if (step == steps_.end()) {
      Error(binding.line(), absl::StrCat("'", binding.value(), "': there is no step '", ref.step, "'"));
      return std::nullopt;
    }
    const auto record = records_.find(ref.step);
    if (record == records_.end()) return std::nullopt;
    const proto::TensorSpecs outputs = proto::CallerOutputs(*record->second);
    const proto::TensorSpec* output = FindTensor(outputs, ref.name);
    if (output == nullptr) {
      Error(binding.line(),
            absl::StrCat("'", binding.value(), "': function '", step->second->function(), "' has no output '",
                         ref.name, "'; its outputs are: ", Names(outputs)));
      return std::nullopt;
    }
    proto::TensorSpec spec = *output;
    const int dimension = static_cast<int>(step->second->fan_out().dimension());
    if (step->second->has_fan_out() && dimension < spec.shape_size()) spec.set_shape(dimension, -1);
    return spec;
  }
  std::optional<proto::TensorSpec> ResolveInput(const proto::Binding& binding, const std::string& name) {
    const auto input = inputs_.find(name);
    if (input == inputs_.end()) {
      const bool is_step = steps_.contains(name);
      Error(binding.line(),
            absl::StrCat("'", name, "' is not an input of the workflow",
                         is_step ? "; it is a step, whose outputs are written STEP.OUTPUT" : ""));
      return std::nullopt;
    }
    used_inputs_.insert(name);
    return input->second->spec();
  }

  void CheckStep(const proto::WorkflowStep& step) {
    const auto found = records_.find(step.name());
    const proto::FunctionRecord* record = found == records_.end() ? nullptr : found->second;
    std::set<std::string> bound;
    for (const proto::Binding& binding : step.inputs()) {
      if (!bound.insert(binding.tensor()).second) {
        Error(binding.line(), absl::StrCat("step '", step.name(), "' binds '", binding.tensor(), "' twice"));
      }
      const std::optional<proto::TensorSpec> value = Resolve(binding);
      if (record != nullptr) CheckBinding(step, *record, binding, value);
    }
    if (record == nullptr) return;
    for (const proto::TensorSpec& input : proto::CallerInputs(*record)) {
      if (!bound.contains(input.name())) {
        Error(step.line(),
              absl::StrCat("step '", step.name(), "' lacks input '", input.name(), "' (", Type(input.type()),
                           " ", Shape(input), ") of function '", step.function(), "'"));
      }
    }
    if (step.has_fan_out()) CheckFanOut(step, *record, bound);
  }

  void CheckBinding(const proto::WorkflowStep& step, const proto::FunctionRecord& record,
                    const proto::Binding& binding, std::optional<proto::TensorSpec> value) {
    const proto::TensorSpecs inputs = proto::CallerInputs(record);
    const proto::TensorSpec* wanted = FindTensor(inputs, binding.tensor());
    if (wanted == nullptr) {
      return Error(binding.line(),
                   absl::StrCat("step '", step.name(), "': function '", step.function(), "' has no input '",
                                binding.tensor(), "'; its inputs are: ", Names(inputs)));
    }
    if (!value.has_value()) return;
    if (value->type() != wanted->type()) {
      Error(binding.line(),
            absl::StrCat("step '", step.name(), "': '", binding.value(), "' is ", Type(value->type()),
                         ", and input '", binding.tensor(), "' is ", Type(wanted->type())));
    }
    // A call of a fanned out step sees one slice.
    const int dimension = static_cast<int>(step.fan_out().dimension());
    const bool split = step.has_fan_out() && step.fan_out().input() == binding.tensor();
    if (split && dimension < value->shape_size()) value->set_shape(dimension, 1);
    if (!ShapesFit(*value, *wanted)) {
      Error(binding.line(), absl::StrCat("step '", step.name(), "': '", binding.value(), "' has shape ",
                                         Shape(*value), split ? " after the fan-out" : "", ", and input '",
                                         binding.tensor(), "' wants ", Shape(*wanted)));
    }
  }

  void CheckFanOut(const proto::WorkflowStep& step, const proto::FunctionRecord& record,
                   const std::set<std::string>& bound) {
    const proto::FanOut& fan_out = step.fan_out();
    const int dimension = static_cast<int>(fan_out.dimension());
    const std::string what = absl::StrCat("step '", step.name(), "': fan_out");
    const proto::TensorSpec* input = FindTensor(record.inputs(), fan_out.input());
    if (input == nullptr || !bound.contains(fan_out.input())) {
      return Error(step.line(), absl::StrCat(what, " names '", fan_out.input(),
                                             "', which is not a bound input of the step"));
    }
    if (input->type() == proto::BYTES) {
      Error(step.line(),
            absl::StrCat(what, ": input '", fan_out.input(), "' is BYTES, which cannot be split"));
    }
    if (dimension >= input->shape_size()) {
      Error(step.line(), absl::StrCat(what, ": input '", fan_out.input(), "' of shape ", Shape(*input),
                                      " has no dimension ", dimension));
    }
    for (const proto::TensorSpec& output : proto::CallerOutputs(record)) {
      if (dimension >= output.shape_size() || output.type() == proto::BYTES) {
        Error(step.line(),
              absl::StrCat(what, ": output '", output.name(), "' (", Type(output.type()), " ", Shape(output),
                           ") cannot be put together along dimension ", dimension));
      }
    }
  }

  // One error per cycle that is found, with its path, at the line of its first step.
  void CheckCycles() {
    for (const proto::WorkflowStep& step : spec_.steps()) {
      if (!done_.contains(step.name())) Visit(step);
    }
  }
  // Depth first without recursion: a chain of a thousand steps must not cost a thousand frames.
  void Visit(const proto::WorkflowStep& first) {
    std::vector<std::pair<const proto::WorkflowStep*, int>> path = {{&first, 0}};
    std::set<std::string> on_path = {first.name()};
    while (!path.empty()) {
      auto& [step, next] = path.back();
      if (next == step->inputs_size()) {
        done_.insert(step->name());
        on_path.erase(step->name());
        path.pop_back();
        continue;
      }
      const std::string from = ParseValue(step->inputs(next++).value()).step;
      const auto it = steps_.find(from);
      if (from.empty() || it == steps_.end() || done_.contains(from)) continue;
      if (on_path.contains(from)) {
        ReportCycle(path, from);
        continue;
      }
      on_path.insert(from);
      path.emplace_back(it->second, 0);
    }
  }
  void ReportCycle(const std::vector<std::pair<const proto::WorkflowStep*, int>>& path,
                   const std::string& to) {
    std::vector<std::string> names;
    auto it = path.begin();
    while (it->first->name() != to) ++it;
    const std::uint32_t line = it->first->line();
    for (; it != path.end(); ++it) names.push_back(it->first->name());
    // The path follows inputs; data flows the other way.
    names.push_back(to);
    std::reverse(names.begin(), names.end());
    Error(line, absl::StrCat("the steps wait for each other: ", absl::StrJoin(names, " -> ")));
  }

  void CheckOutputs(proto::WorkflowRecord& record) {
    if (spec_.outputs().empty()) Error(0, "there are no outputs");
    std::set<std::string> names;
    for (const proto::Binding& binding : spec_.outputs()) {
      if (!names.insert(binding.tensor()).second) {
        Error(binding.line(), absl::StrCat("two outputs are called '", binding.tensor(), "'"));
      }
      std::optional<proto::TensorSpec> value = Resolve(binding);
      if (!value.has_value()) continue;
      value->set_name(binding.tensor());
      *record.add_outputs() = std::move(*value);
    }
  }

  void CheckUnused() {
    for (const proto::WorkflowInput& input : spec_.inputs()) {
      if (!used_inputs_.contains(input.spec().name())) {
        Error(input.line(), absl::StrCat("input '", input.spec().name(), "' is used by no step"));
      }
    }
  }

  const proto::WorkflowSpec& spec_;
  const FunctionTable& functions_;
  std::map<std::string, const proto::WorkflowInput*> inputs_;
  std::map<std::string, const proto::WorkflowStep*> steps_;
  std::map<std::string, const proto::FunctionRecord*> records_;
  std::set<std::string> used_inputs_;
  std::set<std::string> done_;
  std::vector<WorkflowError> errors_;
};

}  // namespace

ValueRef ParseValue(const std::string& value) {
  const std::size_t dot = value.find('.');
  if (dot == std::string::npos) return {.step = {}, .name = value};
  return {.step = value.substr(0, dot), .name = value.substr(dot + 1)};
}

absl::StatusOr<proto::WorkflowRecord> ValidateWorkflow(const proto::WorkflowSpec& spec,
                                                       const FunctionTable& functions) {
  return Validator(spec, functions).Run();
}

}  // namespace troupe::cluster
