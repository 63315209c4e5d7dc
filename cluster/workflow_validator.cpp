#include "cluster/workflow_validator.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest.hpp"
#include "cluster/staged_calls.hpp"
#include "cluster/workflows/condition.hpp"
#include "cluster/workflows/step_circles.hpp"
#include "cluster/workflows/step_ends.hpp"
#include "proto/function_signature.hpp"

namespace troupe::cluster {

namespace {

using proto::TensorSpecs;

std::string Type(proto::DataType type) {
  return proto::DataType_Name(type);
}
std::string Shape(const proto::TensorSpec& spec) {
  return absl::StrCat("[", absl::StrJoin(spec.shape(), ","), "]");
}
std::string Text(const proto::TensorSpec& spec) {
  return absl::StrCat(Type(spec.type()), " ", Shape(spec));
}

constexpr std::size_t kMostCompared = 32;  // names of inputs, letter by letter, in one step

const proto::TensorSpec* FindTensor(const TensorSpecs& specs, const std::string& name) {
  const auto it =
      std::find_if(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name() == name; });
  return it == specs.end() ? nullptr : &*it;
}

std::string Names(const TensorSpecs& specs) {
  return absl::StrJoin(specs, ", ", [](std::string* out, const auto& spec) { out->append(spec.name()); });
}

bool ShapesFit(const proto::TensorSpec& a, const proto::TensorSpec& b) {
  if (a.shape_size() != b.shape_size()) return false;
  for (int i = 0; i < a.shape_size(); ++i) {
    if (a.shape(i) != b.shape(i) && a.shape(i) != -1 && b.shape(i) != -1) return false;
  }
  return true;
}

// What a step calls: a function or a workflow.
struct Callee {
  std::string what{};  // "function 'net'"
  TensorSpecs inputs{};
  TensorSpecs outputs{};
};

class Validator {
 public:
  // `file` is read as far as it can be; what cannot be read was noted, and what follows from that is not.
  Validator(const ReadWorkflowFile& file, const FunctionTable& functions, const FindWorkflow& workflows,
            Mistakes& mistakes)
      : spec_(file.spec), whole_(file.whole), functions_(functions), mistakes_(mistakes) {
    *record_.mutable_spec() = file.spec;
    find_ = FindWith(workflows, record_);
  }

  proto::WorkflowRecord Run() {
    CollectNames();
    for (const proto::WorkflowStep& step : spec_.steps()) CheckStep(step);
    for (const StepCircle& circle : StepCircles(spec_))
      Error(circle.line, absl::StrCat("the steps wait for each other: ", absl::StrJoin(circle.path, " -> ")));
    CheckOutputs();
    if (whole_) CheckUnused();
    return std::move(record_);
  }

 private:
  void Error(std::uint32_t line, std::string message) { mistakes_.Add(line, std::move(message)); }
  void Error(const proto::WorkflowStep& step, std::uint32_t line, const std::string& message) {
    Error(line, absl::StrCat("step '", step.name(), "': ", message));
  }

  // Names that stand there twice were noted when the file was read.
  void CollectNames() {
    if (whole_ && spec_.steps().empty()) Error(0, "there are no steps");
    for (const proto::WorkflowInput& input : spec_.inputs()) inputs_.emplace(input.spec().name(), &input);
    Nesting nesting(find_);
    for (int i = 0; i < spec_.steps_size(); ++i) {
      const proto::WorkflowStep& step = spec_.steps(i);
      if (!step.name().empty()) steps_.emplace(step.name(), &step);
      if (!step.function().empty()) KnowFunction(step);
      if (!step.workflow().empty()) KnowWorkflow(step, nesting);
      const auto callee = callees_.find(step.name());
      if (callee != callees_.end())
        *record_.mutable_spec()->mutable_steps(i)->mutable_outputs() = callee->second.outputs;
    }
  }
  void KnowFunction(const proto::WorkflowStep& step) {
    proto::FunctionKey key;
    key.set_name(step.function());
    key.set_version(step.version());
    const proto::FunctionRecord* record = functions_.Find(key);
    if (record == nullptr) return Error(step, step.line(), absl::StrCat("there is no ", Describe(key)));
    callees_[step.name()] = {absl::StrCat("function '", step.function(), "'"), proto::CallerInputs(*record),
                             proto::CallerOutputs(*record)};
  }
  void KnowWorkflow(const proto::WorkflowStep& step, Nesting& nesting) {
    const auto* called = find_(step.workflow(), step.version());
    if (called == nullptr) {
      const std::string version = step.version().empty() ? "" : absl::StrCat(" version ", step.version());
      return Error(step, step.line(), absl::StrCat("there is no workflow '", step.workflow(), "'", version));
    }
    // Not its own outputs, which are not known yet.
    if (const auto wrong = nesting.WrongWith(record_.spec(), called->spec()); !wrong.empty())
      return Error(step, step.line(), wrong);
    Callee callee{absl::StrCat("workflow '", step.workflow(), "'"), {}, called->outputs()};
    for (const auto& input : called->spec().inputs()) *callee.inputs.Add() = input.spec();
    callees_[step.name()] = std::move(callee);
  }
  // Null: unknown, which was told.
  const Callee* CalleeOf(const std::string& step) const {
    const auto it = callees_.find(step);
    return it == callees_.end() ? nullptr : &it->second;
  }
  // What the steps that read the step see.
  static proto::TensorSpec Seen(const proto::WorkflowStep& step, proto::TensorSpec output) {
    const int dimension = static_cast<int>(step.for_each().dimension());
    if (step.has_for_each() && dimension < output.shape_size()) output.set_shape(dimension, -1);
    return output;
  }

  // What a value is, or nothing when it is none, or of a step whose function is unknown (told already).
  std::optional<proto::TensorSpec> Resolve(std::uint32_t line, const std::string& value) {
    const ValueRef ref = ParseValue(value);
    if (ref.step.empty()) return ResolveInput(line, ref.name);
    const auto step = steps_.find(ref.step);
    if (step == steps_.end()) {
      if (whole_) Error(line, absl::StrCat("'", value, "': there is no step '", ref.step, "'"));
      return std::nullopt;
    }
    const Callee* callee = CalleeOf(ref.step);
    if (callee == nullptr) return std::nullopt;
    const proto::TensorSpec* output = FindTensor(callee->outputs, ref.name);
    if (output == nullptr) {
      Error(line, absl::StrCat("'", value, "': ", callee->what, " has no output '", ref.name,
                               "'; its outputs are: ", Names(callee->outputs)));
      return std::nullopt;
    }
    return Seen(*step->second, *output);
  }
  std::optional<proto::TensorSpec> ResolveInput(std::uint32_t line, const std::string& name) {
    const auto input = inputs_.find(name);
    if (input == inputs_.end()) {
      const bool is_step = steps_.contains(name);
      if (whole_)
        Error(line, absl::StrCat("'", name, "' is not an input of the workflow",
                                 is_step ? "; it is a step, whose outputs are written STEP.OUTPUT" : ""));
      return std::nullopt;
    }
    used_inputs_.insert(name);
    if (input->second->spec().type() == proto::DATA_TYPE_UNSPECIFIED) return std::nullopt;
    return input->second->spec();
  }

  void CheckStep(const proto::WorkflowStep& step) {
    const Callee* callee = CalleeOf(step.name());
    std::set<std::string> bound;
    for (const proto::Binding& binding : step.inputs()) {
      bound.insert(binding.tensor());
      CheckBinding(step, callee, binding);
    }
    if (step.has_when()) CheckWhen(step);
    if (step.has_on_error()) CheckOnError(step, callee);
    if (callee == nullptr) return;
    for (const proto::TensorSpec& input : callee->inputs) {
      if (whole_ && !bound.contains(input.name()) && !Misspelt(*callee, bound, input.name())) {
        Error(step.line(), absl::StrCat("step '", step.name(), "' lacks input '", input.name(), "' (",
                                        Text(input), ") of ", callee->what));
      }
    }
    if (step.has_for_each()) CheckForEach(step, *callee, bound);
  }

  // An input that is meant by a name that is none of the callee's, which is told where it stands.
  static bool Misspelt(const Callee& callee, const std::set<std::string>& bound, const std::string& input) {
    if (std::cmp_greater(callee.inputs.size(), kMostCompared) || bound.size() > kMostCompared) return false;
    return std::any_of(bound.begin(), bound.end(), [&](const std::string& name) {
      return FindTensor(callee.inputs, name) == nullptr && !DidYouMean(name, {input}).empty();
    });
  }

  void CheckBinding(const proto::WorkflowStep& step, const Callee* callee, const proto::Binding& binding) {
    const proto::TensorSpec* wanted = nullptr;
    if (callee != nullptr && !binding.tensor().empty()) {
      wanted = FindTensor(callee->inputs, binding.tensor());
      if (wanted == nullptr)
        Error(step, binding.line(),
              absl::StrCat(callee->what, " has no input '", binding.tensor(),
                           "'; its inputs are: ", Names(callee->inputs)));
    }
    ForEachValue(binding, [&](const std::string& text) {
      std::optional<proto::TensorSpec> value = Resolve(binding.line(), text);
      if (wanted == nullptr || !value.has_value()) return;
      if (value->type() != wanted->type())
        Error(step, binding.line(),
              absl::StrCat("'", text, "' is ", Type(value->type()), ", and input '", binding.tensor(),
                           "' is ", Type(wanted->type())));
      // A call of a step with for_each sees one slice.
      const int dimension = static_cast<int>(step.for_each().dimension());
      const bool split = step.has_for_each() && step.for_each().input() == binding.tensor();
      if (split && dimension < value->shape_size()) value->set_shape(dimension, 1);
      if (!ShapesFit(*value, *wanted))
        Error(step, binding.line(),
              absl::StrCat("'", text, "' has shape ", Shape(*value), split ? " in each call" : "",
                           ", and input '", binding.tensor(), "' wants ", Shape(*wanted)));
    });
  }

  void CheckWhen(const proto::WorkflowStep& step) {
    ForEachValue(step.when(), [&](const std::string& text) {
      const auto value = Resolve(step.when().line(), text);
      if (!value.has_value()) return;
      const auto& shape = value->shape();
      const bool one =
          std::all_of(shape.begin(), shape.end(), [](std::int64_t size) { return size == 1 || size == -1; });
      if (MayBeCondition(value->type()) && one) return;
      Error(step, step.when().line(),
            absl::StrCat("'when' reads '", text, "', which is ", Text(*value),
                         "; a condition is BOOL or an integer type, and has exactly one element"));
    });
  }

  void CheckOnError(const proto::WorkflowStep& step, const Callee* callee) {
    const auto& on_error = step.on_error();
    if (!on_error.step().empty()) return CheckStandIn(step, callee);
    std::set<std::string> given;
    for (const proto::Binding& binding : on_error.values()) {
      given.insert(binding.tensor());
      const auto* output = callee == nullptr ? nullptr : FindTensor(callee->outputs, binding.tensor());
      if (callee != nullptr && output == nullptr && !binding.tensor().empty())
        Error(step, binding.line(),
              absl::StrCat("on_error has a value for '", binding.tensor(), "', and ", callee->what,
                           " has no such output; its outputs are: ", Names(callee->outputs)));
      ForEachValue(binding, [&](const std::string& text) {
        const auto value = Resolve(binding.line(), text);
        if (value.has_value() && output != nullptr)
          CheckInstead(step, binding.line(), Seen(step, *output), text, *value);
      });
    }
    if (callee == nullptr || !whole_) return;
    for (const auto& output : callee->outputs)
      if (!given.contains(output.name()))
        Error(step, on_error.line(),
              absl::StrCat("on_error has no value for the output '", output.name(), "'"));
  }
  void CheckStandIn(const proto::WorkflowStep& step, const Callee* callee) {
    const auto& name = step.on_error().step();
    const std::uint32_t line = step.on_error().line();
    const auto found = steps_.find(name);
    if (found == steps_.end()) {
      if (whole_) Error(step, line, absl::StrCat("on_error names '", name, "', and there is no such step"));
      return;
    }
    const auto [first, is_first] = stands_in_for_.emplace(name, step.name());
    if (!is_first)
      Error(step, line,
            absl::StrCat("on_error names '", name, "', which stands in for step '", first->second,
                         "' already; a step stands in for one other"));
    const Callee* other = CalleeOf(name);
    if (callee == nullptr || other == nullptr) return;
    for (const auto& output : callee->outputs) {
      const auto* instead = FindTensor(other->outputs, output.name());
      if (instead == nullptr) {
        Error(step, line,
              absl::StrCat("on_error names '", name, "', whose ", other->what, " has no output '",
                           output.name(), "' that could stand in for this step's"));
        continue;
      }
      CheckInstead(step, line, Seen(step, output), absl::StrCat(name, ".", output.name()),
                   Seen(*found->second, *instead));
    }
  }
  void CheckInstead(const proto::WorkflowStep& step, std::uint32_t line, const proto::TensorSpec& output,
                    const std::string& text, const proto::TensorSpec& value) {
    if (value.type() == output.type() && ShapesFit(value, output)) return;
    Error(step, line,
          absl::StrCat("'", text, "', which is ", Text(value), ", cannot stand in for the output '",
                       output.name(), "', which is ", Text(output)));
  }

  void CheckForEach(const proto::WorkflowStep& step, const Callee& callee,
                    const std::set<std::string>& bound) {
    const proto::ForEach& for_each = step.for_each();
    const int dimension = static_cast<int>(for_each.dimension());
    const proto::TensorSpec* input = FindTensor(callee.inputs, for_each.input());
    if (input == nullptr || !bound.contains(for_each.input())) {
      return Error(
          step, step.line(),
          absl::StrCat("for_each names '", for_each.input(), "', which is not a bound input of the step"));
    }
    if (input->type() == proto::BYTES) {
      Error(step, step.line(),
            absl::StrCat("for_each: input '", for_each.input(), "' is BYTES, which cannot be split"));
    }
    if (dimension >= input->shape_size()) {
      Error(step, step.line(),
            absl::StrCat("for_each: input '", for_each.input(), "' of shape ", Shape(*input),
                         " has no dimension ", dimension));
    }
    for (const proto::TensorSpec& output : callee.outputs) {
      if (dimension >= output.shape_size() || output.type() == proto::BYTES) {
        Error(step, step.line(),
              absl::StrCat("for_each: output '", output.name(), "' (", Text(output),
                           ") cannot be put together along dimension ", dimension));
      }
    }
  }

  void CheckOutputs() {
    if (whole_ && spec_.outputs().empty()) Error(0, "there are no outputs");
    for (const proto::Binding& binding : spec_.outputs()) {
      std::optional<proto::TensorSpec> output;
      std::string first;
      ForEachValue(binding, [&](const std::string& text) {
        const std::optional<proto::TensorSpec> value = Resolve(binding.line(), text);
        if (!value.has_value()) return;
        if (!output.has_value()) {
          output = value;
          first = text;
          return;
        }
        if (value->type() != output->type() || !ShapesFit(*value, *output)) {
          return Error(binding.line(), absl::StrCat("output '", binding.tensor(), "': '", text, "' is ",
                                                    Text(*value), ", and '", first, "' is ", Text(*output)));
        }
        for (int i = 0; i < output->shape_size(); ++i)
          if (output->shape(i) != value->shape(i)) output->set_shape(i, -1);
      });
      if (!output.has_value()) continue;
      output->set_name(binding.tensor());
      *record_.add_outputs() = *std::move(output);
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
  const bool whole_;
  const FunctionTable& functions_;
  Mistakes& mistakes_;
  FindWorkflow find_;  // with this workflow itself
  std::map<std::string, const proto::WorkflowInput*> inputs_;
  std::map<std::string, const proto::WorkflowStep*> steps_;
  std::map<std::string, Callee> callees_;  // by step
  std::map<std::string, std::string> stands_in_for_;
  std::set<std::string> used_inputs_;
  proto::WorkflowRecord record_;
};

absl::StatusOr<proto::WorkflowRecord> Check(const ReadWorkflowFile& file, const FunctionTable& functions,
                                            const FindWorkflow& workflows, Mistakes& mistakes) {
  auto record = Validator(file, functions, workflows, mistakes).Run();
  if (!mistakes.empty()) return mistakes.ToStatus(file.spec.name());
  return record;
}

}  // namespace

absl::StatusOr<proto::WorkflowRecord> ValidateWorkflow(const proto::WorkflowSpec& spec,
                                                       const FunctionTable& functions,
                                                       const FindWorkflow& workflows) {
  Mistakes mistakes;
  return Check({.spec = spec}, functions, workflows, mistakes);
}

absl::StatusOr<proto::WorkflowRecord> CheckWorkflow(std::string_view text, const FunctionTable& functions,
                                                    const FindWorkflow& workflows) {
  Mistakes mistakes;
  auto file = ReadWorkflowText(text, mistakes);
  if (!file.readable) return mistakes.ToStatus(file.spec.name());
  CallStagedModels(functions, workflows, file.spec);
  return Check(file, functions, workflows, mistakes);
}

}  // namespace troupe::cluster
