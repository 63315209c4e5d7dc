// ADMIN ANSWERS: answers of the cluster manager to people, from what it knows; and a workflow file as a record.
// Reads only.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "cluster/copies/placement_table.hpp"
#include "cluster/event_log.hpp"
#include "cluster/membership_table.hpp"
#include "cluster/records/catalogue.hpp"
#include "proto/admin.pb.h"

namespace troupe::cluster {

class Ownership;
class Scaling;

class StateReplicas;

struct ManagerState {
  const Catalogue& catalogue;
  const MembershipTable& members;
  const PlacementTable& placement;
  const Ownership& ownership;
  const Scaling& scaling;
  const StateReplicas& state_replicas;
  const EventLog& events;
  Time now;
  std::size_t states_unreachable;  // models
};

// "alive", "suspect", ...
[[nodiscard]] std::string StateName(proto::MemberState state);

// Answers what the manager knows by itself: status, events, workflows, runs. UNIMPLEMENTED for other requests.
[[nodiscard]] proto::AdminReply AnswerFromState(const proto::AdminRequest& request,
                                                const ManagerState& state);
// An empty key: every function; an empty version: every version. NOT_FOUND when there is none.
[[nodiscard]] proto::AdminReply AnswerFunctionQuery(const proto::FunctionKey& key, const ManagerState& state);
// Adds the record to the functions of `reply`, with the nodes that hold a copy of its model.
void AddFunction(const proto::FunctionRecord& record, const ManagerState& state, proto::AdminReply& reply);
// The reply says these, one behind the other; its code stays OK. Empty ones are left out.
void SetRemarks(std::vector<std::string> remarks, proto::AdminReply& reply);
// Adds to each function of `reply` on which GPUs of the node it is resident.
void AddResidency(const proto::NodeDescription& node, proto::AdminReply& reply);
// Adds the node's GPUs, its host region and the alpha of its order by SLO.
void GpusOf(const proto::NodeDescription& node, proto::AdminReply& reply);

// Parses and validates a workflow file against the functions that exist.
[[nodiscard]] absl::StatusOr<proto::WorkflowRecord> ReadWorkflow(const std::string& yaml,
                                                                 const Catalogue& catalogue,
                                                                 std::int64_t unix_now);

}  // namespace troupe::cluster
