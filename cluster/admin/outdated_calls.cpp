#include "cluster/admin/outdated_calls.hpp"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cluster/workflow_validator.hpp"

namespace troupe::cluster {

namespace {

// Of calls without a version; "": there is nothing of the name.
std::string VersionCalled(const std::string& name, const Catalogue& catalogue) {
  proto::FunctionKey key;
  key.set_name(name);
  if (const auto* function = catalogue.functions().table().Find(key)) return function->key().version();
  const auto* workflow = catalogue.workflows().Find(name, "");
  return workflow == nullptr ? "" : workflow->spec().version();
}

bool CallsWithoutVersion(const proto::WorkflowSpec& spec, const std::string& name) {
  return std::any_of(spec.steps().begin(), spec.steps().end(), [&](const auto& step) {
    return step.version().empty() && (step.function() == name || step.workflow() == name);
  });
}

}  // namespace

std::string OutdatedCallsOf(const std::string& name, const std::string& version, const Catalogue& catalogue) {
  if (VersionCalled(name, catalogue) != version) return {};
  const auto& workflows = catalogue.workflows();
  std::vector<std::string> outdated;
  for (const std::string& user : workflows.UsersOf(name)) {
    const auto& spec = workflows.Find(user, "")->spec();
    if (!CallsWithoutVersion(spec, name)) continue;
    const auto status = ValidateWorkflow(spec, catalogue.functions().table(), workflows.Finder()).status();
    if (!status.ok())
      outdated.push_back(absl::StrReplaceAll(status.message(), {{":\n", ": "}, {"\n", "; "}}));
  }
  if (outdated.empty()) return {};
  return absl::StrCat("warning: calls without a version get version ", version,
                      " now, and these workflows do not fit it: ", absl::StrJoin(outdated, "; "),
                      "; submit them anew, or name a version that fits in their steps");
}

}  // namespace troupe::cluster
