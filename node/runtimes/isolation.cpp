#include "node/runtimes/isolation.hpp"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/isolation.hpp"

namespace troupe::node {

namespace {

constexpr char kSeparator = '@';  // in no digest, and in no name of a function, tenant or workflow
constexpr char kNobody[] = "-";   // no tenant's name

}  // namespace

absl::StatusOr<proto::Isolation> ParseIsolation(std::string_view name) {
  if (const auto isolation = proto::ParseIsolation(name)) return *isolation;
  return absl::InvalidArgumentError(absl::StrCat("there is no isolation '", std::string(name),
                                                 "'; there are shared, tenant, workflow and function"));
}

std::string IsolationKey(const proto::FunctionRecord& function, proto::Isolation mode,
                         const std::string& workflow) {
  const bool says = function.isolation() != proto::ISOLATION_DEFAULT;
  switch (says ? function.isolation() : mode) {
    case proto::ISOLATION_TENANT:
      return absl::StrCat("tenant/", function.tenant().empty() ? kNobody : function.tenant());
    case proto::ISOLATION_WORKFLOW:
      // A function's device state belongs to the function, whichever workflow calls it.
      if (!workflow.empty() && function.state().empty()) return absl::StrCat("workflow/", workflow);
      [[fallthrough]];
    case proto::ISOLATION_FUNCTION:
      return absl::StrCat("function/", function.key().name());
    case proto::ISOLATION_DEFAULT:
    case proto::ISOLATION_SHARED:
      return {};
    default:
      // A mode of a newer program: as far apart as this one can.
      return absl::StrCat("function/", function.key().name());
  }
}

std::string CopyName(const std::string& digest, const std::string& key) {
  return key.empty() ? digest : absl::StrCat(digest, std::string(1, kSeparator), key);
}

std::string_view DigestOf(std::string_view copy) {
  return copy.substr(0, copy.find(kSeparator));
}

std::string_view KeyOf(std::string_view copy) {
  const auto at = copy.find(kSeparator);
  return at == std::string_view::npos ? std::string_view() : copy.substr(at + 1);
}

std::string RuntimeName(const Serves& serves, bool isolated) {
  if (!serves.assigned) return {};
  return serves.key.empty() && isolated ? kSharedRuntime : serves.key;
}

absl::StatusOr<Serves> ParseRuntimeName(const std::string& name, bool isolated) {
  if (name.empty()) return Serves{!isolated, {}};
  if (name == kSharedRuntime && isolated) return Serves{true, {}};
  for (const char* prefix : {"tenant/", "workflow/", "function/"}) {
    if (absl::StartsWith(name, prefix) && name.size() > std::string_view(prefix).size())
      return Serves{true, name};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a worker serves '", name, "', which this node has no runtimes for"));
}

}  // namespace troupe::node
