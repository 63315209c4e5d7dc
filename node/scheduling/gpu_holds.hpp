// GPU HOLDS: a GPU is kept for a request that others have passed too often: nothing else begins there until
// the request goes.
#pragma once

#include "node/scheduling/scheduler_tables.hpp"
#include "node/scheduling/waiting_requests.hpp"

namespace troupe::node {

class GpuHolds {
 public:
  GpuHolds(SchedulerTables& tables, WaitingRequests& waiting) : tables_(tables), waiting_(waiting) {}

  // Holds a GPU for the request: first a GPU that has its model, else the GPU that will be empty first (of
  // many GPUs: of the least busy ones). When all are held the request keeps its place in the queue, and tries
  // again when it is passed again.
  void HoldFor(RequestEntry& entry);
  void Release(RequestEntry& entry);
  // A GPU that turned out to be too small for the model, or is not its home any more, is kept in vain.
  void LeaveUseless(RequestEntry& entry);

 private:
  [[nodiscard]] bool MayHold(const RequestEntry& entry, const Gpu& gpu) const;

  SchedulerTables& tables_;
  WaitingRequests& waiting_;
};

}  // namespace troupe::node
