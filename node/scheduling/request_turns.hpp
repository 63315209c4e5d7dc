// REQUEST TURNS: a decision request by request: the most urgent one first, and for each the GPU that the gpu
// policy chooses. What cannot be placed yet is passed by others, and is not passed for ever.
#pragma once

#include <cstdint>
#include <span>

#include "base/random.hpp"
#include "node/scheduling/policies/gpu_policy.hpp"
#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

struct SchedulerParts;

class RequestTurns {
 public:
  RequestTurns(SchedulerParts& parts, SchedulerTables& tables)
      : parts_(parts), tables_(tables), random_(tables.limits.seed) {}

  void Decide(Time now);

 private:
  void DecideInOrder(bool hits_only, Time now);
  void StayWaiting(RequestEntry& entry, const GpuChoice& choice, Time now);
  [[nodiscard]] RequestEntry* FirstBefore(const OrderingKey& key);
  void NotePassed(std::span<RequestEntry* const> passed);

  SchedulerParts& parts_;
  SchedulerTables& tables_;
  Random random_;
};

}  // namespace troupe::node
