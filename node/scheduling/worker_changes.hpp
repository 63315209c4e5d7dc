// WORKER CHANGES: what it means for the tables that a worker came, died or will not come again, and for the
// requests that were on it.
#pragma once

#include <string>

#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

struct SchedulerParts;

class WorkerChanges {
 public:
  WorkerChanges(SchedulerParts& parts, SchedulerTables& tables) : parts_(parts), tables_(tables) {}

  Consequences Apply(const WorkerReady& ready, Time now);
  Consequences Apply(const WorkerLost& lost, Time now);
  Consequences Apply(const GpuUnfit& unfit, Time now);
  void FoundResident(GpuIndex gpu, const ResidentReport& report, Time now);

 private:
  [[nodiscard]] std::string WorkerGone(GpuIndex gpu, const std::string& why) const;
  Consequences LoseGpu(GpuIndex gpu, WorkerState state, const std::string& why);

  SchedulerParts& parts_;
  SchedulerTables& tables_;
};

}  // namespace troupe::node
