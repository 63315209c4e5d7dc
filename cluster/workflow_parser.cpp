#include "cluster/workflow_parser.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/yaml_document.hpp"
#include "cluster/function_registry.hpp"
#include "cluster/workflows/for_each_limits.hpp"
#include "cluster/workflows/yaml_fields.hpp"

namespace troupe::cluster {

namespace {

constexpr std::int64_t kMostRetries = 1000;

using Bindings = google::protobuf::RepeatedPtrField<proto::Binding>;

// Reads one file; every mistake is noted, and reading goes on where that makes sense.
class Reader {
 public:
  Reader(const WorkflowLimits& limits, Mistakes& mistakes) : limits_(limits), fields_(mistakes) {}

  void Read(const YAML::Node& root) {
    if (!fields_.IsMap(root, "a workflow")) return Lose();
    const auto misspelt = fields_.Keys(root, "a workflow", {"name", "version", "inputs", "steps", "outputs"});
    fields_.Require(root, "a workflow", {"name", "steps", "outputs"}, misspelt);
    if (root["name"]) spec().set_name(Name(root["name"], "workflow"));
    if (root["version"]) spec().set_version(Version(root["version"]));
    if (root["inputs"] && IsMap(root["inputs"], "'inputs'")) ReadInputs(root["inputs"]);
    if (root["steps"]) ReadSteps(root["steps"]);
    if (!root["steps"] || !root["outputs"]) Lose();
    if (root["outputs"] && IsMap(root["outputs"], "'outputs'"))
      ReadBindings(root["outputs"], "'outputs'", *spec().mutable_outputs());
  }
  ReadWorkflowFile& file() { return file_; }

 private:
  proto::WorkflowSpec& spec() { return file_.spec; }
  // A part of the file could not be read: what refers to it is not to be judged.
  void Lose() { file_.whole = false; }

  bool IsMap(const YAML::Node& node, const std::string& what) {
    if (fields_.IsMap(node, what)) return true;
    Lose();
    return false;
  }
  std::string Scalar(const YAML::Node& node, const std::string& what) {
    std::string text = fields_.Scalar(node, what);
    if (text.empty()) Lose();
    return text;
  }
  std::string Name(const YAML::Node& node, const std::string& what) {
    std::string name = Scalar(node, absl::StrCat("the name of a ", what));
    if (name.empty()) return name;
    if (const absl::Status status = ValidateName(what, name); !status.ok())
      fields_.Error(node, std::string(status.message()));
    return name;
  }
  // Names that stand on the left of a dot in STEP.OUTPUT have none.
  std::string PlainName(const YAML::Node& node, const std::string& what) {
    std::string name = Name(node, what);
    if (name.find('.') != std::string::npos)
      fields_.Error(node, absl::StrCat("'", name, "': the name of a ", what, " has no '.'"));
    return name;
  }
  std::string Version(const YAML::Node& node) {
    std::string version = fields_.Scalar(node, "a version");
    if (version.empty() || VersionNumber(version) != 0) return version;
    fields_.Error(node, absl::StrCat("'", version, "' is not a valid version; versions are 1, 2, 3 ..."));
    return {};
  }

  void ReadInputs(const YAML::Node& inputs) {
    fields_.Keys(inputs, "'inputs'", {});
    for (const auto& entry : inputs) {
      if (!entry.first.IsScalar()) {
        Lose();
        continue;
      }
      if (Full(entry.first, spec().inputs_size(), limits_.max_inputs, "inputs")) return;
      proto::WorkflowInput& input = *spec().add_inputs();
      input.set_line(LineOf(entry.first));
      input.mutable_spec()->set_name(PlainName(entry.first, "workflow input"));
      const std::string what = absl::StrCat("input '", input.spec().name(), "'");
      if (!fields_.IsMap(entry.second, what)) continue;
      const auto misspelt = fields_.Keys(entry.second, what, {"type", "shape"});
      fields_.Require(entry.second, what, {"type", "shape"}, misspelt);
      const auto type = entry.second["type"] ? ReadType(entry.second["type"]) : proto::DATA_TYPE_UNSPECIFIED;
      const bool shaped = entry.second["shape"] && ReadShape(entry.second["shape"], what, input);
      // Without its shape, nothing that reads the input can be judged.
      if (shaped) input.mutable_spec()->set_type(type);
    }
  }
  proto::DataType ReadType(const YAML::Node& node) {
    const std::string type = fields_.Scalar(node, "a type");
    const auto parsed = ParseDataType(type);
    if (!type.empty() && parsed == proto::DATA_TYPE_UNSPECIFIED) {
      fields_.Error(
          node,
          absl::StrCat("'", type,
                       "' is not a valid tensor type; types are BOOL, UINT8 ... UINT64, INT8 ... INT64, "
                       "FP16, FP32, FP64, BF16 and BYTES"));
    }
    return parsed;
  }
  bool ReadShape(const YAML::Node& node, const std::string& what, proto::WorkflowInput& input) {
    if (!node.IsSequence() || node.size() > limits_.max_rank) {
      fields_.Error(node, absl::StrCat("the shape of ", what, " is to be a list of at most ",
                                       limits_.max_rank, " sizes, -1 for any size"));
      return false;
    }
    for (const auto& size : node)
      input.mutable_spec()->add_shape(fields_.Integer(size, "a size in a shape", -1));
    return true;
  }

  bool Full(const YAML::Node& node, int size, std::size_t limit, const char* what) {
    if (static_cast<std::size_t>(size) < limit) return false;
    fields_.Error(node, absl::StrCat("more than ", limit, " ", what, " are not supported"));
    Lose();
    return true;
  }

  void ReadSteps(const YAML::Node& steps) {
    if (!steps.IsSequence()) {
      Lose();
      return fields_.Error(steps, absl::StrCat("'steps' is ", KindOf(steps), ", and a list is expected"));
    }
    std::set<std::string> names;
    for (const auto& node : steps) {
      if (Full(node, spec().steps_size(), limits_.max_steps, "steps")) return;
      if (!IsMap(node, "a step")) continue;
      proto::WorkflowStep& step = *spec().add_steps();
      step.set_line(LineOf(node));
      ReadStep(node, step);
      if (!step.name().empty() && !names.insert(step.name()).second) {
        fields_.Error(node, absl::StrCat("two steps are called '", step.name(), "'"));
      }
    }
  }
  void ReadStep(const YAML::Node& node, proto::WorkflowStep& step) {
    if (node["name"]) step.set_name(PlainName(node["name"], "step"));
    if (step.name().empty()) Lose();
    const std::string what = step.name().empty() ? "a step" : absl::StrCat("step '", step.name(), "'");
    const auto misspelt = fields_.Keys(node, what,
                                       {"name", "function", "workflow", "version", "inputs", "when",
                                        "for_each", "timeout", "retries", "on_error", "durable"},
                                       {"fan_out"});
    fields_.Require(node, what, {"name", "inputs"}, misspelt);
    if (!node["function"] == !node["workflow"] && !misspelt.contains("function") &&
        !misspelt.contains("workflow"))
      fields_.Error(node, absl::StrCat(what,
                                       node["function"] ? " has both 'function' and 'workflow'"
                                                        : " lacks 'function', or 'workflow'",
                                       "; a step names one of them"));
    if (node["function"]) step.set_function(Name(node["function"], "function"));
    if (node["workflow"] && !node["function"]) step.set_workflow(Name(node["workflow"], "workflow"));
    if (node["version"]) step.set_version(Version(node["version"]));
    if (node["inputs"] && IsMap(node["inputs"], absl::StrCat("'inputs' of ", what))) {
      ReadBindings(node["inputs"], absl::StrCat("'inputs' of ", what), *step.mutable_inputs());
    }
    if (node["when"]) ReadValues(node["when"], absl::StrCat("'when' of ", what), *step.mutable_when());
    if (node["for_each"] && node["fan_out"])
      fields_.Error(node["fan_out"],
                    absl::StrCat(what, " has 'for_each' and 'fan_out', which is its former name"));
    if (node["for_each"]) ReadForEach(node["for_each"], "for_each", what, step);
    if (node["fan_out"]) ReadForEach(node["fan_out"], "fan_out", what, step);
    if (node["timeout"]) step.set_timeout_ns(fields_.Time(node["timeout"], "timeout").count());
    if (node["retries"])
      step.set_retries(static_cast<std::uint32_t>(
          fields_.Integer(node["retries"], absl::StrCat("'retries' of ", what), 0, kMostRetries)));
    if (node["on_error"]) ReadOnError(node["on_error"], what, step);
    if (node["durable"]) ReadDurable(node["durable"], what, step);
  }
  void ReadDurable(const YAML::Node& node, const std::string& step_name, proto::WorkflowStep& step) {
    const std::string what = absl::StrCat("'durable' of ", step_name);
    const std::string name = fields_.Scalar(node, what);
    if (name == "bytes") return step.set_durable(proto::DURABLE_BYTES);
    if (name == "lineage") return step.set_durable(proto::DURABLE_LINEAGE);
    if (!name.empty())
      fields_.Error(node,
                    absl::StrCat(what, " is '", name,
                                 "', and 'bytes' (its outputs are written before the next step begins) or "
                                 "'lineage' (they are computed anew when they are lost) is expected"));
  }
  void ReadForEach(const YAML::Node& node, const std::string& key, const std::string& step_name,
                   proto::WorkflowStep& step) {
    const std::string what = absl::StrCat("'", key, "' of ", step_name);
    if (!fields_.IsMap(node, what)) return;
    const auto misspelt = fields_.Keys(node, what, {"input", "dimension", "most", "at_once"});
    fields_.Require(node, what, {"input", "dimension"}, misspelt);
    proto::ForEach each;
    const auto number = [&](const char* name, std::int64_t least, std::uint64_t most) {
      if (!node[name]) return std::uint32_t{0};
      return static_cast<std::uint32_t>(fields_.Integer(node[name], absl::StrCat("'", name, "' of ", what),
                                                        least, static_cast<std::int64_t>(most)));
    };
    if (node["input"]) each.set_input(fields_.Scalar(node["input"], absl::StrCat("'input' of ", what)));
    each.set_dimension(number("dimension", 0, limits_.max_rank - 1));
    each.set_most(number("most", 1, ForEachLimits::kLargestMost));
    each.set_at_once(number("at_once", 1, ForEachLimits::kLargestAtOnce));
    if (!each.input().empty() && node["dimension"]) *step.mutable_for_each() = each;
  }
  void ReadOnError(const YAML::Node& node, const std::string& step_name, proto::WorkflowStep& step) {
    const std::string what = absl::StrCat("'on_error' of ", step_name);
    if (!fields_.IsMap(node, what)) return;
    const auto misspelt = fields_.Keys(node, what, {"step", "values"});
    proto::OnError on_error;
    on_error.set_line(LineOf(node));
    if (!node["step"] == !node["values"] && misspelt.empty())
      fields_.Error(node, absl::StrCat(what,
                                       " names either a 'step', which stands in for it, or 'values', one for "
                                       "each of its outputs"));
    if (node["step"]) on_error.set_step(Scalar(node["step"], absl::StrCat("'step' of ", what)));
    if (node["values"] && IsMap(node["values"], absl::StrCat("'values' of ", what)))
      ReadBindings(node["values"], absl::StrCat("'values' of ", what), *on_error.mutable_values());
    if (!on_error.step().empty() != !on_error.values().empty()) *step.mutable_on_error() = on_error;
  }
  void ReadBindings(const YAML::Node& map, const std::string& what, Bindings& out) {
    fields_.Keys(map, what, {});
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) {
        Lose();
        continue;
      }
      if (Full(entry.first, out.size(), limits_.max_inputs, "bindings")) return;
      proto::Binding& binding = *out.Add();
      binding.set_tensor(Scalar(entry.first, "the name of a tensor"));
      ReadValues(entry.second, absl::StrCat("the value of '", binding.tensor(), "'"), binding);
      binding.set_line(LineOf(entry.first));
    }
  }
  // One value, or a list: the first of them that the run has.
  void ReadValues(const YAML::Node& node, const std::string& what, proto::Binding& binding) {
    binding.set_line(LineOf(node));
    if (!node.IsSequence()) return binding.set_value(Scalar(node, what));
    if (node.size() == 0 || node.size() > limits_.max_fallbacks + 1) {
      Lose();
      return fields_.Error(node, absl::StrCat(what, " is a list of ", node.size(), " values; 1 to ",
                                              limits_.max_fallbacks + 1, " are supported"));
    }
    for (const auto& each : node) {
      std::string value = Scalar(each, what);
      if (value.empty()) continue;
      if (binding.value().empty()) {
        binding.set_value(std::move(value));
      } else {
        binding.add_fallbacks(std::move(value));
      }
    }
  }

  const WorkflowLimits limits_;
  YamlFields fields_;
  ReadWorkflowFile file_;
};

}  // namespace

proto::DataType ParseDataType(std::string_view name) {
  proto::DataType type = proto::DATA_TYPE_UNSPECIFIED;
  return proto::DataType_Parse(std::string(name), &type) ? type : proto::DATA_TYPE_UNSPECIFIED;
}

ReadWorkflowFile ReadWorkflowText(std::string_view text, Mistakes& mistakes, const WorkflowLimits& limits) {
  Reader reader(limits, mistakes);
  if (text.size() > limits.max_text) {
    mistakes.Add(0, absl::StrCat("the file has ", FormatBytes(Bytes(text.size())), "; at most ",
                                 FormatBytes(Bytes(limits.max_text)), " are read"));
    return {.spec = {}, .readable = false, .whole = false};
  }
  // yaml-cpp reports text that is not YAML by exceptions; they end here.
  try {
    reader.Read(LoadOneDocument(std::string(text)));
  } catch (const YAML::Exception& error) {
    const std::uint32_t line = error.mark.is_null() ? 0 : static_cast<std::uint32_t>(error.mark.line + 1);
    mistakes.Add(line, absl::StrCat("this is not valid YAML: ", error.msg));
    reader.file().readable = reader.file().whole = false;
  }
  return std::move(reader.file());
}

absl::StatusOr<proto::WorkflowSpec> ParseWorkflow(std::string_view text, const WorkflowLimits& limits) {
  Mistakes mistakes;
  auto file = ReadWorkflowText(text, mistakes, limits);
  if (!mistakes.empty()) return mistakes.ToStatus(file.spec.name());
  return std::move(file.spec);
}

}  // namespace troupe::cluster
