// BATCHES: which waiting requests go with the request that is dispatched, and how long it waits for them. What
// may be joined is decided by what the node knows of it (NodeRequest::batch), what is worth it by the batching
// policy (node/scheduling/policies/batching_policy.hpp).
//
//   waits -> leads a run, or goes with the run of another one -> ends, each for itself
//   goes with a run -> waits: the run failed for a reason of its own, and its requests run apart, once; or its
//                      worker died, and they are planned again as any request
#pragma once

#include <optional>
#include <vector>

#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

struct SchedulerParts;

// The requests that go with one that is dispatched, and what their run takes.
struct Company {
  std::vector<RequestEntry*> members{};
  Duration run{};  // as long as it may take; zero without members
  Bytes room{};    // beyond a run of one request
};

class Batches {
 public:
  Batches(SchedulerParts& parts, SchedulerTables& tables) : parts_(parts), tables_(tables) {}

  // For the GPU that the request goes to, where it needs `need` without company.
  [[nodiscard]] Company CompanyOf(const RequestEntry& leader, const Gpu& gpu, Bytes need, Time now) const;
  // A request that could be dispatched to the GPU waits for company until then; nothing: it does not, or not
  // any more.
  [[nodiscard]] std::optional<Time> Awaits(RequestEntry& entry, const Gpu& gpu, Time now) const;
  // The requests of the run that ended, the one that led it first. They are not joined any more.
  [[nodiscard]] std::vector<RequestEntry*> Part(RequestEntry& leader) const;
  // They go back to the queue, each to have a run of its own; a request that was cancelled or is late ends.
  void RunApart(const std::vector<RequestEntry*>& requests, const RunDone& done, Consequences& effects);
  [[nodiscard]] static std::uint32_t RowsOf(const std::vector<RequestEntry*>& requests);

 private:
  [[nodiscard]] bool MayJoin(const RequestEntry& entry) const;
  // Waiting requests that can go with the first of them, which it is, in order.
  [[nodiscard]] std::vector<RequestEntry*> CandidatesFor(const RequestEntry& leader) const;

  SchedulerParts& parts_;
  SchedulerTables& tables_;
};

}  // namespace troupe::node
