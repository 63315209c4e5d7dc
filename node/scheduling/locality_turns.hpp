// LOCALITY TURNS: a decision GPU by GPU, as LALB has it (node/scheduling/locality_queue.hpp): each idle GPU
// asks the waiting requests in their order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

struct SchedulerParts;

class LocalityTurns {
 public:
  LocalityTurns(SchedulerParts& parts, SchedulerTables& tables) : parts_(parts), tables_(tables) {}
  void AddRuntimes() { dispatched_to_.resize(tables_.requests.pipelines.size()); }

  void Decide(Time now);

 private:
  // The ones that are used most come first.
  [[nodiscard]] std::vector<GpuIndex> IdleGpus() const;
  [[nodiscard]] bool MayStart(const RequestEntry& entry);
  // Algorithm 2 for the request, asked by the idle GPU `index`: where it goes; kNoGpu: it stays.
  [[nodiscard]] GpuIndex PlaceFor(const RequestEntry& entry, GpuIndex index, Time now) const;
  [[nodiscard]] std::optional<OrderingKey> FirstHit(const Gpu& gpu);

  SchedulerParts& parts_;
  SchedulerTables& tables_;
  std::vector<std::uint64_t> dispatched_to_;  // by GPU
};

}  // namespace troupe::node
