// STATE TURNS: functions that keep state on the device: which of a state's requests is next, and on which GPU the state is.
#pragma once

#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

struct SchedulerParts;

class StateTurns {
 public:
  StateTurns(SchedulerParts& parts, SchedulerTables& tables) : parts_(parts), tables_(tables) {}

  // The request of this model that goes next: the most urgent, but the requests of each state in the order in
  // which they were accepted, one at a time. A state whose GPU is busy does not keep others from other GPUs. Null: none
  // may go now.
  enum class Among { kAll, kOwnPlaces };  // those that have places of their own
  [[nodiscard]] RequestEntry* NextOf(ModelId model, Among among = Among::kAll);
  // The turn of the request's function, on the GPU that the request goes to.
  void Place(RequestEntry& entry, GpuIndex gpu, Time now);
  // This state leaves the GPU where it is, and its model stays: its room is free for what is ordered next.
  void SendAway(const StateNumber& state);
  // It has left; `gone` false: it stays there after all, and what it takes counts again.
  void EndLeave(const StateNumber& state, bool gone, Time now);
  // What the states of a model take that have stayed on the GPU counts again.
  void Book(GpuIndex gpu, ModelId model);
  void EndTurn(const RequestEntry& entry);
  // Where the state of a run that has ended is now.
  void Note(const RequestEntry& entry, const RunDone& done);
  // Ends the requests that wait; a request that is on a GPU ends with its outcome.
  void EndLine(const StateNumber& state, FinishKind kind, const absl::Status& why, proto::BounceReason bounce,
               Consequences& effects);
  // Ends the first request that waits, and that is on no GPU.
  [[nodiscard]] Finished EndFirst(const StateNumber& state, const absl::Status& why);
  void Check() const;

 private:
  // The request's state is on a GPU that takes no run now.
  [[nodiscard]] bool Waits(const RequestEntry& entry, const FunctionStates::State& state) const;

  SchedulerParts& parts_;
  SchedulerTables& tables_;
};

}  // namespace troupe::node
