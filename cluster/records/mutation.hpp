// MUTATION: a requested change of the registries, with what its answer needs.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "cluster/events.hpp"

namespace troupe::cluster {

// Changes that are made in one commit, in this order.
using CatalogueCommand = std::variant<proto::DeployFunction, proto::RemoveFunction, proto::SetFunctionLoaded,
                                      proto::WorkflowRecord, proto::RemoveWorkflow>;

// --- functions (admin/deployments.hpp) ---
struct Deploying {
  Ask ask = 0;
  proto::DeployFunction command{};
};
struct TakingBack {  // a deployment that no node can serve
  Ask ask = 0;
  proto::RemoveFunction command{};
  std::int64_t deployed_unix_ns = 0;
  absl::Status why{};
};
struct Removing {
  Ask ask = 0;
  proto::RemoveFunction command{};
  proto::AdminReply reply{};
};
struct Loading {  // or unloading
  Ask ask = 0;
  proto::LoadRequest wish{};
  std::vector<proto::SetFunctionLoaded> commands{};
};
// --- models in stages (admin/staged_models.hpp) ---
struct DeployingStages {
  Ask ask = 0;
  std::string name{};
  std::string version{};
  std::vector<proto::FunctionRecord> stages{};
  proto::WorkflowRecord workflow{};
  std::vector<CatalogueCommand> commands{};
  std::size_t open = 0;    // stages for which a node is awaited, once it is stored
  absl::Status remarks{};  // what is still to come when it is answered
};
struct Splitting {  // the requests among the versions
  Ask ask = 0;
  proto::SplitFunction wish{};
  std::vector<proto::SetVersionShare> commands{};
};
struct Updating {  // how a function shares its GPUs
  Ask ask = 0;
  proto::UpdateFunction wish{};
  proto::FunctionKey key{};  // with the version that is meant
  std::vector<proto::SetFunctionSharing> commands{};
};
struct FollowingProfiles {  // the functions that leave settings to their profiles, as these say now
  std::vector<proto::SetFunctionSharing> commands{};
};

// --- parts of GPUs that functions own (ownership/ownership.hpp) ---
struct Placing {
  std::vector<proto::SetFunctionPlaces> commands{};
  std::vector<std::uint64_t> revisions{};  // of these functions' records, as the plan found them
};

// --- workflows (admin/workflow_changes.hpp) ---
struct SubmittingWorkflow {
  Ask ask = 0;
  std::string yaml{};
  proto::WorkflowRecord command{};
};
struct RemovingWorkflow {  // with the functions that are its stages
  Ask ask = 0;
  proto::RemoveWorkflow wish{};
  std::vector<CatalogueCommand> commands{};
  proto::AdminReply reply{};
  // Of a deployment in stages that no node can serve, which is taken back:
  absl::Status why{};
  std::int64_t submitted_unix_ns = 0;
};

// --- keys (admin/key_changes.hpp) ---
struct CreatingKey {
  Ask ask = 0;
  proto::CreateApiKey command{};
  absl::Status valid{};  // whether such a key may be kept
  std::string text{};
};
struct RevokingKey {
  Ask ask = 0;
  proto::RevokeApiKey command{};
};

// --- profiles (profiling/profiling.hpp) ---
struct KeepingProfile {
  Ask ask = 0;  // 0: no one asked for it now
  proto::KeepProfile command{};
};
// --- (profiling/profile_removals.hpp) ---
struct DroppingProfiles {
  Ask ask = 0;
  proto::RemoveProfile wish{};
  std::vector<proto::DropProfile> commands{};
};

using Mutation = std::variant<Deploying, DeployingStages, TakingBack, Removing, Loading, Splitting, Updating,
                              FollowingProfiles, Placing, SubmittingWorkflow, RemovingWorkflow, CreatingKey,
                              RevokingKey, KeepingProfile, DroppingProfiles>;

}  // namespace troupe::cluster
