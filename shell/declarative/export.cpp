#include "shell/declarative/export.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "base/nearest.hpp"
#include "shell/declarative/manifest.hpp"
#include "shell/declarative/settings.hpp"
#include "shell/text/cat.hpp"
#include "shell/text/text.hpp"

namespace troupe::shell {

namespace {

using Bindings = google::protobuf::RepeatedPtrField<proto::Binding>;

// One value, or a list of those of which the first that is there counts.
std::string ValuesYaml(const proto::Binding& binding) {
  if (binding.fallbacks().empty()) return YamlText(binding.value());
  auto out = Cat("[", YamlText(binding.value()));
  for (const auto& value : binding.fallbacks()) Append(&out, ", ", YamlText(value));
  return out + "]";
}

std::string BindingMap(const Bindings& bindings) {
  return Cat("{",
             absl::StrJoin(bindings, ", ",
                           [](std::string* out, const proto::Binding& binding) {
                             Append(out, YamlText(binding.tensor()), ": ", ValuesYaml(binding));
                           }),
             "}");
}

std::string ForEachYaml(const proto::ForEach& each) {
  auto out = Cat("{input: ", YamlText(each.input()), ", dimension: ", each.dimension());
  if (each.most() > 0) Append(&out, ", most: ", each.most());
  if (each.at_once() > 0) Append(&out, ", at_once: ", each.at_once());
  return out + "}";
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
  auto out = Cat("  - name: ", YamlText(step.name()),
                 step.workflow().empty() ? "\n    function: " : "\n    workflow: ",
                 YamlText(step.workflow().empty() ? step.function() : step.workflow()), "\n");
  if (!step.version().empty()) Append(&out, "    version: ", step.version(), "\n");
  Append(&out, "    inputs: ", BindingMap(step.inputs()), "\n");
  if (step.has_when()) Append(&out, "    when: ", ValuesYaml(step.when()), "\n");
  if (step.has_for_each()) Append(&out, "    for_each: ", ForEachYaml(step.for_each()), "\n");
  if (step.timeout_ns() > 0) Append(&out, "    timeout: ", ExactTime(step.timeout_ns()), "\n");
  if (step.has_retries()) Append(&out, "    retries: ", step.retries(), "\n");
  if (step.durable() != proto::DURABLE_BY_COST)
    Append(&out, "    durable: ", step.durable() == proto::DURABLE_BYTES ? "bytes" : "lineage", "\n");
  if (!step.on_error().step().empty())
    Append(&out, "    on_error: {step: ", YamlText(step.on_error().step()), "}\n");
  if (!step.on_error().values().empty())
    Append(&out, "    on_error: {values: ", BindingMap(step.on_error().values()), "}\n");
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
