#include "cluster/workflow_parser.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/units.hpp"
#include "cluster/function_registry.hpp"

namespace troupe::cluster {

namespace {

std::uint32_t LineOf(const YAML::Node& node) {
  return static_cast<std::uint32_t>(node.Mark().line + 1);
}

const char* KindOf(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return "a single value";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a mapping";
    default:
      return "nothing";
  }
}

// Reads one file; every error is noted and reading goes on where that makes sense.
class Reader {
 public:
  explicit Reader(const WorkflowLimits& limits) : limits_(limits) {}

  void Read(const YAML::Node& root) {
    if (!IsMap(root, "a workflow")) return;
    Keys(root, "a workflow", {"name", "version", "inputs", "steps", "outputs"});
    Require(root, "a workflow", {"name", "steps", "outputs"});
    if (root["name"]) spec_.set_name(Name(root["name"], "workflow"));
    if (root["version"]) spec_.set_version(Version(root["version"]));
    if (root["inputs"] && IsMap(root["inputs"], "'inputs'")) ReadInputs(root["inputs"]);
    if (root["steps"]) ReadSteps(root["steps"]);
    if (root["outputs"] && IsMap(root["outputs"], "'outputs'"))
      ReadBindings(root["outputs"], "'outputs'", *spec_.mutable_outputs());
  }
  proto::WorkflowSpec& spec() { return spec_; }
  std::vector<WorkflowError>& errors() { return errors_; }

 private:
  void Error(const YAML::Node& node, std::string message) {
    errors_.push_back({LineOf(node), std::move(message)});
  }

  bool IsMap(const YAML::Node& node, const std::string& what) {
    if (node.IsMap()) return true;
    Error(node, absl::StrCat(what, " is ", KindOf(node), ", and a mapping is expected"));
    return false;
  }

  // Notes keys that are not known, and those that stand there twice.
  void Keys(const YAML::Node& map, const std::string& what, const std::set<std::string>& known) {
    std::set<std::string> seen;
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) {
        Error(entry.first, absl::StrCat("a key of ", what, " is ", KindOf(entry.first)));
        continue;
      }
      const std::string& key = entry.first.Scalar();
      if (!known.empty() && !known.contains(key)) {
        Error(entry.first,
              absl::StrCat(what, " has no '", key, "'; known are: ", absl::StrJoin(known, ", ")));
      } else if (!seen.insert(key).second) {
        Error(entry.first, absl::StrCat("'", key, "' stands twice in ", what));
      }
    }
  }
  void Require(const YAML::Node& map, const std::string& what, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
      if (!map[key]) Error(map, absl::StrCat(what, " lacks '", key, "'"));
    }
  }

  std::string Scalar(const YAML::Node& node, const std::string& what) {
    if (node.IsScalar() && !node.Scalar().empty()) return node.Scalar();
    Error(node, absl::StrCat(what, " is ", node.IsScalar() ? "empty" : KindOf(node),
                             ", and a single value is expected"));
    return {};
  }
  std::string Name(const YAML::Node& node, const std::string& what) {
    std::string name = Scalar(node, absl::StrCat("the name of a ", what));
    if (name.empty()) return name;
    if (const absl::Status status = ValidateName(what, name); !status.ok())
      Error(node, std::string(status.message()));
    return name;
  }
  // Names that stand on the left of a dot in STEP.OUTPUT have none.
  std::string PlainName(const YAML::Node& node, const std::string& what) {
    std::string name = Name(node, what);
    if (name.find('.') != std::string::npos)
      Error(node, absl::StrCat("'", name, "': the name of a ", what, " has no '.'"));
    return name;
  }
  std::string Version(const YAML::Node& node) {
    std::string version = Scalar(node, "a version");
    if (!version.empty() && VersionNumber(version) == 0) {
      Error(node, absl::StrCat("'", version, "' is not a valid version; versions are 1, 2, 3 ..."));
    }
    return version;
  }
  std::int64_t Integer(const YAML::Node& node, const std::string& what, std::int64_t least) {
    const std::string text = Scalar(node, what);
    if (text.empty()) return least;
    std::int64_t value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && rest == text.data() + text.size() && value >= least) return value;
    Error(node, absl::StrCat(what, " is '", text, "', and a whole number from ", least, " up is expected"));
    return least;
  }

  void ReadInputs(const YAML::Node& inputs) {
    Keys(inputs, "'inputs'", {});
    for (const auto& entry : inputs) {
      if (!entry.first.IsScalar() || Full(entry.first, spec_.inputs_size(), limits_.max_inputs, "inputs"))
        return;
      proto::WorkflowInput& input = *spec_.add_inputs();
      input.set_line(LineOf(entry.first));
      input.mutable_spec()->set_name(PlainName(entry.first, "workflow input"));
      const std::string what = absl::StrCat("input '", input.spec().name(), "'");
      if (!IsMap(entry.second, what)) continue;
      Keys(entry.second, what, {"type", "shape"});
      Require(entry.second, what, {"type", "shape"});
      if (entry.second["type"]) ReadType(entry.second["type"], input);
      if (entry.second["shape"]) ReadShape(entry.second["shape"], what, input);
    }
  }
  void ReadType(const YAML::Node& node, proto::WorkflowInput& input) {
    const std::string type = Scalar(node, "a type");
    input.mutable_spec()->set_type(ParseDataType(type));
    if (!type.empty() && input.spec().type() == proto::DATA_TYPE_UNSPECIFIED) {
      Error(node, absl::StrCat(
                      "'", type,
                      "' is not a valid tensor type; types are BOOL, UINT8 ... UINT64, INT8 ... INT64, FP16, "
                      "FP32, FP64, BF16 and BYTES"));
    }
  }
  void ReadShape(const YAML::Node& node, const std::string& what, proto::WorkflowInput& input) {
    if (!node.IsSequence() || node.size() > limits_.max_rank) {
      Error(node, absl::StrCat("the shape of ", what, " is to be a list of at most ", limits_.max_rank,
                               " sizes, -1 for any size"));
      return;
    }
    for (const auto& size : node) input.mutable_spec()->add_shape(Integer(size, "a size in a shape", -1));
  }

  bool Full(const YAML::Node& node, int size, std::size_t limit, const char* what) {
    if (static_cast<std::size_t>(size) < limit) return false;
    Error(node, absl::StrCat("more than ", limit, " ", what, " are not supported"));
    return true;
  }

  void ReadSteps(const YAML::Node& steps) {
    if (!steps.IsSequence())
      return Error(steps, absl::StrCat("'steps' is ", KindOf(steps), ", and a list is expected"));
    std::set<std::string> names;
    for (const auto& node : steps) {
      if (Full(node, spec_.steps_size(), limits_.max_steps, "steps")) return;
      if (!IsMap(node, "a step")) continue;
      proto::WorkflowStep& step = *spec_.add_steps();
      step.set_line(LineOf(node));
      ReadStep(node, step);
      if (!step.name().empty() && !names.insert(step.name()).second) {
        Error(node, absl::StrCat("two steps are called '", step.name(), "'"));
      }
    }
  }
  void ReadStep(const YAML::Node& node, proto::WorkflowStep& step) {
    if (node["name"]) step.set_name(PlainName(node["name"], "step"));
    const std::string what = step.name().empty() ? "a step" : absl::StrCat("step '", step.name(), "'");
    Keys(node, what, {"name", "function", "version", "inputs", "fan_out", "timeout"});
    Require(node, what, {"name", "function", "inputs"});
    if (node["function"]) step.set_function(Name(node["function"], "function"));
    if (node["version"]) step.set_version(Version(node["version"]));
    if (node["inputs"] && IsMap(node["inputs"], absl::StrCat("'inputs' of ", what))) {
      ReadBindings(node["inputs"], absl::StrCat("'inputs' of ", what), *step.mutable_inputs());
    }
    if (node["fan_out"]) ReadFanOut(node["fan_out"], what, step);
    if (node["timeout"]) ReadTimeout(node["timeout"], step);
  }
  void ReadFanOut(const YAML::Node& node, const std::string& step_name, proto::WorkflowStep& step) {
    const std::string what = absl::StrCat("'fan_out' of ", step_name);
    if (!IsMap(node, what)) return;
    Keys(node, what, {"input", "dimension"});
    Require(node, what, {"input", "dimension"});
    proto::FanOut& fan_out = *step.mutable_fan_out();
    if (node["input"]) fan_out.set_input(Scalar(node["input"], "the input to fan out"));
    if (!node["dimension"]) return;
    const std::int64_t dimension = Integer(node["dimension"], "the dimension to fan out", 0);
    if (dimension >= static_cast<std::int64_t>(limits_.max_rank)) {
      Error(node["dimension"],
            absl::StrCat("dimension ", dimension, " is beyond the largest rank, ", limits_.max_rank));
    } else {
      fan_out.set_dimension(static_cast<std::uint32_t>(dimension));
    }
  }
  void ReadTimeout(const YAML::Node& node, proto::WorkflowStep& step) {
    Duration timeout{};
    const std::string text = Scalar(node, "a timeout");
    if (!text.empty() && (!ParseDuration(text, timeout) || timeout <= Duration::zero())) {
      Error(node, absl::StrCat("'", text, "' is not a valid timeout; write one like 500ms, 5s or 2m"));
    }
    step.set_timeout_ns(timeout.count());
  }
  void ReadBindings(const YAML::Node& map, const std::string& what,
                    google::protobuf::RepeatedPtrField<proto::Binding>& out) {
    Keys(map, what, {});
    for (const auto& entry : map) {
      if (!entry.first.IsScalar() || Full(entry.first, out.size(), limits_.max_inputs, "bindings")) return;
      proto::Binding& binding = *out.Add();
      binding.set_line(LineOf(entry.first));
      binding.set_tensor(Scalar(entry.first, "the name of a tensor"));
      binding.set_value(Scalar(entry.second, absl::StrCat("the value of '", binding.tensor(), "'")));
    }
  }

  WorkflowLimits limits_;
  proto::WorkflowSpec spec_;
  std::vector<WorkflowError> errors_;
};

}  // namespace

absl::Status WorkflowErrors(std::string_view workflow, std::vector<WorkflowError> errors) {
  constexpr std::size_t kMost = 100;
  std::stable_sort(errors.begin(), errors.end(),
                   [](const auto& a, const auto& b) { return a.line < b.line; });
  const std::string which =
      workflow.empty() ? "the workflow" : absl::StrCat("workflow '", std::string(workflow), "'");
  std::string text = absl::StrCat(which, " has ", errors.size(), errors.size() == 1 ? " error:" : " errors:");
  for (std::size_t i = 0; i < std::min(errors.size(), kMost); ++i) {
    const std::string line = errors[i].line == 0 ? "" : absl::StrCat("line ", errors[i].line, ": ");
    absl::StrAppend(&text, "\n", line, errors[i].message);
  }
  if (errors.size() > kMost) absl::StrAppend(&text, "\nand ", errors.size() - kMost, " more");
  return absl::InvalidArgumentError(text);
}

proto::DataType ParseDataType(std::string_view name) {
  proto::DataType type = proto::DATA_TYPE_UNSPECIFIED;
  return proto::DataType_Parse(std::string(name), &type) ? type : proto::DATA_TYPE_UNSPECIFIED;
}

absl::StatusOr<proto::WorkflowSpec> ParseWorkflow(std::string_view text, const WorkflowLimits& limits) {
  if (text.size() > limits.max_text) {
    return absl::InvalidArgumentError(absl::StrCat("the workflow file has ", FormatBytes(Bytes(text.size())),
                                                   "; at most ", FormatBytes(Bytes(limits.max_text)),
                                                   " are read"));
  }
  Reader reader(limits);
  // yaml-cpp reports text that is not YAML by exceptions; they end here.
  try {
    reader.Read(YAML::Load(std::string(text)));
  } catch (const YAML::Exception& error) {
    const std::uint32_t line = error.mark.is_null() ? 0 : static_cast<std::uint32_t>(error.mark.line + 1);
    return WorkflowErrors(reader.spec().name(),
                          {{line, absl::StrCat("this is not valid YAML: ", error.msg)}});
  }
  if (!reader.errors().empty()) return WorkflowErrors(reader.spec().name(), std::move(reader.errors()));
  return std::move(reader.spec());
}

}  // namespace troupe::cluster
