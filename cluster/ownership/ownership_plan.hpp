// OWNERSHIP PLAN: which functions own which rectangles of which GPUs. A function that requests time on a GPU
// (quota_request) owns a rectangle for each of its instances: its part of the SMs for that part of each window
// (001 FaST-GShare, section 3.4.2). The model stays on these GPUs, and the function's runs go to no other one. All
// other functions are bound late, and so is a function for whose rectangle no GPU has room.
//
// Functions that leave quota_request to the manager are placed last, by the autoscaler (cluster/autoscaling).
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
#include "cluster/ownership/scaled_owners.hpp"
#include "proto/function.pb.h"

namespace troupe::cluster {

using GpuPlaces = google::protobuf::RepeatedPtrField<proto::GpuPlace>;
using PlacesByFunction = std::map<FunctionVersion, GpuPlaces>;

// How the plan treats functions that are scaled.
struct ScaledPlanning {
  Rescale rescale{};  // empty: they keep what they own
  // Functions that may come to own something though they do not now; some of them may be gone.
  std::vector<FunctionVersion> asked{};
  // Whether instances may move to make room for others. Without a change of what the plan looks at nothing has more room by
  // moves than at the plan before, but for what scaled functions gave back.
  bool moves = true;
  // Also empties a GPU, or mends a fragmented one, by a few moves of what is placed.
  bool tidy = false;
  // What they would own if the autoscaler's advice were followed; null: it is, and they own what their records say.
  const PlacesByFunction* advised = nullptr;
  // The cluster has just started: a node that has joined may still be taking up the models that it had, so that what is owned
  // there stays.
  bool after_start = false;
};

struct OwnershipPlan {
  std::vector<proto::SetFunctionPlaces> commands{};  // of functions whose places change
  std::vector<std::uint64_t> revisions{};            // of the records of these
  // Functions that own fewer rectangles than they have instances, and why.
  std::map<FunctionVersion, absl::Status> problems{};
  PlacesByFunction advice{};  // of functions that are scaled, when it is not followed
};

// GPUs count that are fit, on nodes that take part, do not drain and have a host copy of the function's model. A
// suspected node gets nothing new.
[[nodiscard]] OwnershipPlan PlanOwnership(const FunctionTable& functions, const MembershipTable& members,
                                          const HostCopies& copies, const ScaledPlanning& scaled = {});

}  // namespace troupe::cluster
