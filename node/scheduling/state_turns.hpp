// STATE TURNS: functions that keep state on the device: which of a function's requests is next, and on which
// GPU its state is.
#pragma once

#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

struct SchedulerParts;

class StateTurns {
 public:
  StateTurns(SchedulerParts& parts, SchedulerTables& tables) : parts_(parts), tables_(tables) {}

  // The request of this model that goes next: the most urgent, but each function with state in the order in
  // which its requests were accepted, one at a time. Null: none may go now.
  [[nodiscard]] RequestEntry* NextOf(ModelId model);
  // The turn of the request's function, on the GPU that the request goes to.
  void Place(RequestEntry& entry, GpuIndex gpu);
  void EndTurn(const RequestEntry& entry);
  // Where the state of a run that has ended is now.
  void Note(const RequestEntry& entry, const RunDone& done);
  // Ends the requests that wait; a request that is on a GPU ends with its outcome.
  void EndLine(const StateNumber& state, FinishKind kind, const absl::Status& why, proto::BounceReason bounce,
               Consequences& effects);
  void Check() const;

 private:
  SchedulerParts& parts_;
  SchedulerTables& tables_;
};

}  // namespace troupe::node
