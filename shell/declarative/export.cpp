#include "shell/declarative/export.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "base/nearest.hpp"
#include "shell/cat.hpp"
#include "shell/declarative/manifest.hpp"
#include "shell/declarative/settings.hpp"
#include "shell/text.hpp"

namespace troupe::shell {

namespace {

using Bindings = google::protobuf::RepeatedPtrField<proto::Binding>;

std::string BindingMap(const Bindings& bindings) {
  return Cat("{",
             absl::StrJoin(bindings, ", ",
                           [](std::string* out, const proto::Binding& binding) {
                             Append(out, YamlText(binding.tensor()), ": ", YamlText(binding.value()));
                           }),
             "}");
}

std::string FunctionYaml(const std::string& name,
                         const std::map<std::uint64_t, const proto::FunctionRecord*>& versions) {
  auto out = Cat("---\nkind: function\nname: ", YamlText(name), "\nversions:\n");
  const bool shared = std::any_of(versions.begin(), versions.end(),
                                  [](const auto& version) { return version.second->share_percent() > 0; });
  for (const auto& [number, record] : versions) {
    Append(&out, "  ", number, ":", record->loaded() ? "" : "  # it is unloaded", "\n    model: ", kByDigest,
           record->onnx_digest(), "\n");
    if (shared) Append(&out, "    weight: ", record->share_percent(), "%\n");
    for (const auto& line : SettingLines(*record)) Append(&out, "    ", line, "\n");
  }
  return out;
}

std::string StepYaml(const proto::WorkflowStep& step) {
  auto out = Cat("  - name: ", YamlText(step.name()), "\n    function: ", YamlText(step.function()), "\n");
  if (!step.version().empty()) Append(&out, "    version: ", step.version(), "\n");
  Append(&out, "    inputs: ", BindingMap(step.inputs()), "\n");
  if (step.has_fan_out())
    Append(&out, "    fan_out: {input: ", YamlText(step.fan_out().input()),
           ", dimension: ", step.fan_out().dimension(), "}\n");
  if (step.timeout_ns() > 0) Append(&out, "    timeout: ", ExactTime(step.timeout_ns()), "\n");
  return out;
}

std::string WorkflowYaml(const proto::WorkflowSpec& spec) {
  auto out = Cat("---\nkind: workflow\nname: ", YamlText(spec.name()), "\nversion: ", spec.version(), "\n");
  if (!spec.inputs().empty()) out += "inputs:\n";
  for (const auto& input : spec.inputs())
    Append(&out, "  ", YamlText(input.spec().name()), ": {type: ", proto::DataType_Name(input.spec().type()),
           ", shape: [", absl::StrJoin(input.spec().shape(), ", "), "]}\n");
  out += "steps:\n";
  for (const auto& step : spec.steps()) out += StepYaml(step);
  return Cat(out, "outputs: ", BindingMap(spec.outputs()), "\n");
}

}  // namespace

absl::StatusOr<std::string> ExportYaml(const proto::AdminReply& functions, const proto::AdminReply& workflows,
                                       const std::vector<std::string>& names) {
  std::map<std::string, std::map<std::uint64_t, const proto::FunctionRecord*>> known;
  std::set<std::string> all;
  for (const auto& function : functions.functions()) {
    std::uint64_t number = 0;
    if (!absl::SimpleAtoi(function.record().key().version(), &number)) continue;
    known[function.record().key().name()].emplace(number, &function.record());
    all.insert(function.record().key().name());
  }
  for (const auto& workflow : workflows.workflows()) all.insert(workflow.spec().name());
  for (const auto& name : names)
    if (!all.contains(name))
      return absl::NotFoundError(Cat("there is no function or workflow '", Printable(name), "'",
                                     DidYouMean(name, {all.begin(), all.end()})));
  const auto wanted = [&](const std::string& name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  };
  std::string out;
  for (const auto& [name, versions] : known)
    if (wanted(name)) out += FunctionYaml(name, versions);
  for (const auto& workflow : workflows.workflows())
    if (wanted(workflow.spec().name())) out += WorkflowYaml(workflow.spec());
  return out;
}

}  // namespace troupe::shell
