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
      : parts_(parts), tables_(tables), random_(tables.rules.limits.seed) {}

  void Decide(Time now);

 private:
  void DecideInOrder(bool hits_only, Time now);
  // Which GPU the request is to have now, and whether it can.
  struct Look {
    GpuChoice choice{};
    bool runs = false;
  };
  [[nodiscard]] Look LookAt(RequestEntry& entry, bool hits_only, Time now);
  // The request waits at the node for others that could share its run.
  [[nodiscard]] bool AwaitsCompany(RequestEntry& entry, GpuIndex gpu, Time now);
  // Its model's requests that have places of their own wait for no request that has none.
  void DispatchToOwnPlaces(ModelId model, bool hits_only, Time now);
  void StayWaiting(RequestEntry& entry, const GpuChoice& choice, Time now);
  [[nodiscard]] RequestEntry* FirstBefore(const OrderingKey& key);
  void NotePassed(std::span<RequestEntry* const> passed);

  SchedulerParts& parts_;
  SchedulerTables& tables_;
  Random random_;
};

}  // namespace troupe::node
