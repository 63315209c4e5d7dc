#include "cluster/workflow_registry.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::cluster {

std::size_t WorkflowRegistry::size() const {
  std::size_t size = 0;
  for (const auto& [name, versions] : workflows_) size += versions.size();
  return size;
}

absl::StatusOr<proto::WorkflowRecord> WorkflowRegistry::ValidateSubmit(const proto::WorkflowRecord& wish,
                                                                       const FunctionTable& functions) const {
  proto::WorkflowRecord record = wish;
  proto::WorkflowSpec& spec = *record.mutable_spec();
  TROUPE_RETURN_IF_ERROR(ValidateName("workflow", spec.name()));
  if (functions.VersionsOf(spec.name()) != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", spec.name(),
                     "' is a function, and a workflow is called by the same address; choose another name"));
  }
  if (size() >= max_workflows_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the cluster has ", size(), " workflows, its limit; remove some first"));
  }
  const auto it = workflows_.find(spec.name());
  if (it != workflows_.end() && (it->second.rbegin()->second.spec().stages() > 0) != (spec.stages() > 0)) {
    return absl::AlreadyExistsError(
        absl::StrCat("of the versions of '", spec.name(), "' that are there, ",
                     spec.stages() > 0 ? "none is a model in stages" : "each is a model in stages",
                     "; choose another name"));
  }
  const std::uint64_t newest = it == workflows_.end() ? 0 : it->second.rbegin()->first;
  TROUPE_ASSIGN_OR_RETURN(*spec.mutable_version(), ChooseVersion(spec.version(), newest));
  if (it != workflows_.end() && it->second.contains(VersionNumber(spec.version()))) {
    return absl::AlreadyExistsError(absl::StrCat("workflow '", spec.name(), "' version ", spec.version(),
                                                 " is submitted already; the next free version is ",
                                                 newest + 1));
  }
  if (const auto wrong = WrongWithCallersOf(spec.name(), FindWith(Finder(), record)); !wrong.empty())
    return absl::InvalidArgumentError(absl::StrCat("with this version, ", wrong));
  return record;
}

absl::Status WorkflowRegistry::ValidateRemoval(const std::string& name, const std::string& version) const {
  const auto* removed = Find(name, version);
  if (removed == nullptr) return absl::NotFoundError(absl::StrCat("there is no workflow '", name, "'"));
  const auto& versions = workflows_.at(name);
  const FindWorkflow without = [&](const std::string& other,
                                   const std::string& wanted) -> const proto::WorkflowRecord* {
    const auto* found = Find(other, wanted);
    if (found != removed) return found;
    if (!wanted.empty() || versions.size() == 1) return nullptr;
    return &std::next(versions.rbegin())->second;
  };
  const auto wrong = WrongWithCallersOf(name, without);
  if (wrong.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("without version ", removed->spec().version(), " of '",
                                                    name, "', ", wrong,
                                                    "; remove or change one of them first"));
}

std::string WorkflowRegistry::WrongWithCallersOf(const std::string& name, const FindWorkflow& find) const {
  Nesting nesting(find);
  // Callers of callers are deeper still.
  std::vector<std::string> left = {name};
  std::set<std::string> seen = {name};
  while (!left.empty()) {
    const auto callers = UsersOf(left.back());
    left.pop_back();
    for (const auto& caller : callers) {
      if (!seen.insert(caller).second) continue;
      left.push_back(caller);
      for (const auto& [number, record] : workflows_.at(caller)) {
        if (find(caller, record.spec().version()) != &record) continue;  // this version is being removed
        if (auto wrong = nesting.WrongWith(record.spec()); !wrong.empty()) return wrong;
      }
    }
  }
  return {};
}

void WorkflowRegistry::Apply(const proto::WorkflowRecord& record, Revision revision) {
  const std::uint64_t version = VersionNumber(record.spec().version());
  TROUPE_CHECK(version != 0, "a workflow without a version was applied");
  proto::WorkflowRecord& stored = workflows_[record.spec().name()][version];
  stored = record;
  stored.set_revision(revision);
}

bool WorkflowRegistry::ApplyRemoval(const std::string& name, const std::string& version) {
  const auto it = workflows_.find(name);
  if (it == workflows_.end()) return false;
  const std::uint64_t number = version.empty() ? it->second.rbegin()->first : VersionNumber(version);
  if (it->second.erase(number) == 0) return false;
  if (it->second.empty()) workflows_.erase(it);
  return true;
}

const proto::WorkflowRecord* WorkflowRegistry::Find(const std::string& name,
                                                    const std::string& version) const {
  const auto it = workflows_.find(name);
  if (it == workflows_.end()) return nullptr;
  if (version.empty()) return &it->second.rbegin()->second;
  const auto found = it->second.find(VersionNumber(version));
  return found == it->second.end() ? nullptr : &found->second;
}

std::vector<std::string> WorkflowRegistry::UsersOf(const std::string& function) const {
  std::vector<std::string> users;
  for (const auto& [name, versions] : workflows_) {
    const bool uses = std::any_of(versions.begin(), versions.end(), [&](const auto& version) {
      const auto& steps = version.second.spec().steps();
      return std::any_of(steps.begin(), steps.end(), [&](const auto& step) {
        return step.function() == function || step.workflow() == function;
      });
    });
    if (uses) users.push_back(name);
  }
  return users;
}

}  // namespace troupe::cluster
