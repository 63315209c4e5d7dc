// RESERVATIONS: a dispatch, a prefetch or an eviction reserves memory and time of a GPU in the tables, and
// becomes what the worker is to be told.
#pragma once

#include <vector>

#include "node/scheduling/batches.hpp"
#include "node/scheduling/policies/gpu_policy.hpp"
#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

struct SchedulerParts;

class Reservations {
 public:
  Reservations(SchedulerParts& parts, SchedulerTables& tables) : parts_(parts), tables_(tables) {}

  // The request goes to the GPU of the choice, and takes its company along.
  Dispatch Reserve(RequestEntry& entry, GpuChoice choice, Time now);
  // A prefetch: the decision at hand gets it.
  void Prefetch(ModelId model, const PrefetchPlan& plan, Time begin_by, Time now);
  void Evict(GpuIndex gpu, ModelId model);

 private:
  void Claim(RequestEntry& entry, Bytes activation, Duration work) const;
  void Load(const RequestLook& look, RequestEntry& entry, GpuChoice& choice, Time now);
  void Place(const RequestLook& look, RequestEntry& entry, GpuChoice& choice,
             const std::vector<ModelId>& victims, const Company& company, Time now);
  // The request leaves the queue, with a run or in one.
  void Leave(RequestEntry& entry, GpuIndex gpu, Time now);
  void PassThrough(RequestEntry& entry, GpuIndex gpu, Time now);
  [[nodiscard]] Time BeginBy(const RequestEntry& entry, const Company& company) const;
  [[nodiscard]] Dispatch Order(const RequestEntry& entry, const GpuChoice& choice,
                               const std::vector<ModelId>& victims, const Company& company) const;

  SchedulerParts& parts_;
  SchedulerTables& tables_;
};

}  // namespace troupe::node
