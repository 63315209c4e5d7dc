// ORDER OUTCOMES: what a worker's answer to an order changes in the tables, and which requests end with it or
// are planned again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

struct SchedulerParts;

class OrderOutcomes {
 public:
  OrderOutcomes(SchedulerParts& parts, SchedulerTables& tables) : parts_(parts), tables_(tables) {}

  Consequences Apply(const EvictDone& done, Time now);
  Consequences Apply(const SwapInDone& done, Time now);
  Consequences Apply(const RunDone& done, Time now);
  // What has stayed on its GPU for long enough may leave again.
  void EndStays(Time now);

 private:
  void LoadFailed(GpuIndex gpu, ModelId model, Time now);
  void ObserveLoad(const SwapInDone& done, ModelId model);
  // `rows`: of all requests that it answered, `requests` of them.
  void ObserveRun(const RequestEntry& entry, const RunDone& done, std::uint32_t rows, std::size_t requests);
  void Ran(const std::vector<RequestEntry*>& requests, const RunDone& done, Consequences& effects, Time now);
  void EvictForgotten(GpuIndex gpu, ModelId model, Consequences& effects);
  void LeaveGpu(RequestEntry& entry, Time now);
  void EndRun(RequestEntry& entry, const absl::Status& status, Consequences& effects, Time now);
  void EndTooLarge(RequestEntry& entry, const RunDone& done, Consequences& effects);
  void Replan(RequestEntry& entry, const RunDone& done, bool alone, Consequences& effects);
  void LearnNoFit(const RequestEntry& entry, const RunDone& done, bool alone);

  SchedulerParts& parts_;
  SchedulerTables& tables_;
};

}  // namespace troupe::node
