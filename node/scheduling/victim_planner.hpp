// VICTIM PLANNER: which models are evicted for a request or a copy, in the eviction policy's order; before them, which
// states of other sequences of its model leave; and which model passes through a full GPU without an eviction. Pure looks
// at the tables.
#pragma once

#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/units.hpp"
#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

class VictimPlanner {
 public:
  explicit VictimPlanner(const SchedulerTables& tables) : tables_(tables) {}

  // The room that a run is given: more than it needs by the estimates, where they were wrong before.
  [[nodiscard]] Bytes Target(ModelId model, const Gpu& gpu, Bytes need) const;
  // The request fits, now or after evicting all that may go. `own`: its model there, or null.
  [[nodiscard]] bool CanMakeRoom(const RequestLook& look, const Gpu& gpu, const Resident* own,
                                 Bytes need) const;
  // The states to send away for the request before a model is evicted. States that no request waits for come first, the
  // longest unused of them before the others.
  [[nodiscard]] std::vector<StateNumber> PlanStates(const RequestEntry& entry, Bytes need,
                                                    const Gpu& gpu) const;
  // The models to evict for a model, or its run, that then fits; models that need not go after all are left
  // out.
  [[nodiscard]] std::vector<ModelId> Plan(ModelId model, Bytes need, const Gpu& gpu, Time now) const;
  // The largest rank among those; kNothingGoes without any.
  [[nodiscard]] EvictionRank WorstVictim(const RequestEntry& entry, Bytes need, const Gpu& gpu,
                                         Time now) const;

  // What a model takes of a GPU that it passes through: the worker plans it by what the steps read, and
  // answers NoFit when this is too little.
  [[nodiscard]] static Bytes WindowOf(Bytes weights);
  // Bringing the model would evict only such as were used since then, when it was last asked for, half of the
  // weights or more need not be there at a time, and the others fit into that room.
  [[nodiscard]] bool MayPass(ModelId model, const Gpu& gpu, Bytes room, const std::vector<ModelId>& victims,
                             Time since) const;
  [[nodiscard]] bool PassesThrough(const RequestEntry& entry, const Gpu& gpu,
                                   const std::vector<ModelId>& victims) const;

 private:
  [[nodiscard]] double RateOf(const ModelEntry& model, Time now) const;
  using Victims = absl::InlinedVector<Victim, 8>;
  [[nodiscard]] std::vector<Victim> MayGo(ModelId coming, const Gpu& gpu, Time now) const;
  // `room`: that is free, or will be.
  [[nodiscard]] Victims Choose(ModelId model, Bytes need, Bytes room, const Gpu& gpu, Time now) const;
  // What may leave from beside the request's model, but for the request's own state.
  [[nodiscard]] std::vector<StateNumber> StatesToGo(const RequestEntry& entry, const Gpu& gpu) const;
  [[nodiscard]] Bytes RoomOfStates(const RequestEntry& entry, const Gpu& gpu) const;
  [[nodiscard]] bool FitsAlone(const Gpu& gpu, const Resident* own, Bytes need, Bytes room) const;

  const SchedulerTables& tables_;
};

}  // namespace troupe::node
