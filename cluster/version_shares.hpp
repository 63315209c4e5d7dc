// VERSION SHARES: how the versions of a function share the requests that name no version. Pure.
//
//   unshared (the newest version answers) --canary, promote, shares--> shared
//   shared --canary--> stable and canary --promote--> the canary is stable, the stable version is the former one
//   stable and canary --roll back--> the stable version has all --roll back--> the former version has all
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/function_table.hpp"
#include "proto/admin.pb.h"

namespace troupe::cluster {

// Whether any of the versions has a share: then the newest one does not get all requests by itself.
[[nodiscard]] bool AreShared(const FunctionTable::Versions& versions);
// "version 1 gets 90 %, version 2 gets 10 %"; "the newest version gets all" when they are not shared.
[[nodiscard]] std::string DescribeShares(const FunctionTable::Versions& versions);

// The commands that give the versions these shares; never empty. InvalidArgument: the wish contradicts itself.
// NotFound: the function has no such version. FailedPrecondition: a version cannot get a share, because the version is
// unloaded, keeps state, or takes or gives other tensors than the stable version.
[[nodiscard]] absl::StatusOr<std::vector<proto::SetVersionShare>> SplitVersions(
    const FunctionTable::Versions& versions, const proto::SplitFunction& wish);

// FailedPrecondition for a version that has a share, unless the function has no other version.
[[nodiscard]] absl::Status CheckRemovable(const FunctionTable::Versions& versions,
                                          const proto::FunctionRecord& record);

}  // namespace troupe::cluster
