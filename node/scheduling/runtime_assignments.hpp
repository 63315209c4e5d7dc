// RUNTIME ASSIGNMENTS: which runtime is assigned to which isolation key (node/runtimes/isolation.hpp), for a
// request that finds none of its key, and which runtime is given back.
#pragma once

#include <string>

#include "node/runtimes/isolation.hpp"
#include "node/scheduling/policies/gpu_policy.hpp"
#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

struct SchedulerParts;

class RuntimeAssignments {
 public:
  RuntimeAssignments(SchedulerParts& parts, SchedulerTables& tables) : parts_(parts), tables_(tables) {}

  // A request was not placed on a runtime of its key: one is made for it, where that can be done.
  void SeekFor(RequestEntry& entry, const GpuChoice& choice, Time now);
  // Runtimes that did nothing for `idle` serve no key again; NextIdle: when the next one will have been idle
  // for so long.
  void GiveBack(Time now, Duration idle);
  [[nodiscard]] Time NextIdle(Duration idle) const;

 private:
  [[nodiscard]] bool KeyWaits(const std::string& key) const;
  [[nodiscard]] bool Settled(Time since, Time now);
  // The outputs that lie with its worker may be lost.
  [[nodiscard]] bool OutputsMayGo(const Gpu& gpu, Time now);
  [[nodiscard]] bool MayTake(const RequestEntry& entry, const Gpu& gpu, Time now);
  [[nodiscard]] bool ClearStates(GpuIndex index);
  void Assign(GpuIndex index, const node::Serves& serves);
  [[nodiscard]] bool AtHome(const Gpu& gpu) const;

  SchedulerParts& parts_;
  SchedulerTables& tables_;
};

}  // namespace troupe::node
