// OWNERSHIP PLAN: which functions own which rectangles of which GPUs. A function that requests time on a GPU
// (quota_request) owns a rectangle for each of its instances: its part of the SMs for that part of each window
// (001 FaST-GShare, section 3.4.2). The model stays on these GPUs, and the function's runs go to no other one. All
// other functions are bound late, and so is a function for whose rectangle no GPU has room.
//
// What is owned already stays where it is, unless its GPU is gone or a new rectangle fits only when it moves. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/copies/host_copies.hpp"
#include "cluster/function_table.hpp"
#include "cluster/membership_table.hpp"
#include "proto/function.pb.h"

namespace troupe::cluster {

struct OwnershipPlan {
  std::vector<proto::SetFunctionPlaces> commands{};  // of functions whose places change
  // Functions that own fewer rectangles than they have instances, and why.
  std::map<FunctionVersion, absl::Status> problems{};
};

// GPUs count that are fit, on nodes that take part, do not drain and have a host copy of the function's model. A
// suspected node gets nothing new.
[[nodiscard]] OwnershipPlan PlanOwnership(const FunctionTable& functions, const MembershipTable& members,
                                          const HostCopies& copies);

}  // namespace troupe::cluster
