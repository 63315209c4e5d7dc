// AFTER A COMMIT: what a part of the cluster has to remember of a commit until the store has answered. Each of
// these comes back to the part that committed, with the store's answer; cluster.cpp knows which part that is.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "cluster/admin/audit_entry.hpp"
#include "cluster/events.hpp"
#include "cluster/records/usage_totals.hpp"
#include "cluster/runs/run_change.hpp"

namespace troupe::cluster {

// --- members ---
struct EpochStored {  // of a member that joined
  Ask ask = 0;
  std::string name{};
  std::uint64_t epoch = 0;
  AuditEntry entry{};
};
struct DrainStored {
  Ask ask = 0;
  proto::DrainNode wish{};
};

// --- copies ---
struct HomeStored {  // the node that is to keep the state of this model's functions
  std::string digest{};
  std::string node{};
};
struct HomeMoved {
  std::string digest{};
  std::uint64_t move = 0;  // its number
};

struct InStepStored {  // which nodes are in step with the home of this model's states
  std::string digest{};
  std::uint64_t term = 0;  // of the home
};

// --- usage ---
struct UsageStored {
  UsageChange change{};
};

// --- records ---
struct MutationStored {};  // the first of the queue

// --- profiling ---
struct ExperimentStored {
  Ask ask = 0;  // that began it; 0: a trial of it has ended
  proto::ProfilingExperiment experiment{};
};

// --- runs ---
struct StartStored {
  proto::StartRun command{};
};
struct StepStored {
  std::string what{};  // the run and the step
  proto::CommitStep command{};
};
struct EndStored {
  EndWish wish{};
};
struct ClaimStored {
  ClaimWish wish{};
  proto::ClaimRun command{};
};
struct StartsTakenBack {
  std::set<std::string> runs{};
};

// The first: nothing is left to do.
using AfterCommit = std::variant<std::monostate, EpochStored, DrainStored, HomeStored, HomeMoved,
                                 MutationStored, StartStored, StepStored, EndStored, ClaimStored,
                                 StartsTakenBack, UsageStored, ExperimentStored, InStepStored>;

}  // namespace troupe::cluster
