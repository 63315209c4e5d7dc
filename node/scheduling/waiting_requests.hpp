// WAITING REQUESTS: the requests that wait, and which of them a decision looks at: a request that waits for a
// certain GPU is left out until that GPU is free. So a decision does not scan the queue.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/btree_map.h"
#include "node/scheduling/locality_queue.hpp"
#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

class WaitingRequests {
 public:
  explicit WaitingRequests(SchedulerTables& tables);
  void AddRuntimes() { parked_.resize(tables_.requests.pipelines.size()); }

  void Enqueue(RequestEntry& entry);
  void Dequeue(const RequestEntry& entry);
  // What can no longer begin in time goes behind what can, where late requests yield.
  void YieldLate(Time now);
  // `gone` was dispatched: a request that yielded to it may go on.
  void GiveTurn(const RequestEntry& gone);
  // The next decision looks at the model's requests.
  void Activate(ModelId model);
  void ActivateAll();
  // What a GPU with a place could run at once, whichever GPU it was waiting for.
  void ActivateResidents(const Gpu& gpu);
  // No decision looks at the model's requests until the GPU's next outcome (Wake).
  void Park(ModelId model, GpuIndex gpu);
  void Wake(GpuIndex gpu);

  // With decisions by GPU: the same requests in their order. Null without.
  [[nodiscard]] LocalityQueue* locality() { return locality_.get(); }
  [[nodiscard]] RequestEntry& At(const OrderingKey& key) { return *in_order_.at(key); }
  // Those whose router has named a GPU, in their order: no turn looks at them (node/scheduling/named_requests.hpp).
  [[nodiscard]] const absl::btree_map<OrderingKey, RequestEntry*>& named() const { return named_; }
  // The request waits on, as one whose router has named no GPU.
  void ForgetName(RequestEntry& entry);
  void Check() const;

 private:
  void Rekey(RequestEntry& entry, const OrderingKey& key);

  SchedulerTables& tables_;
  std::vector<std::vector<ModelId>> parked_;  // by GPU; also such as were looked up again since
  std::unique_ptr<LocalityQueue> locality_;
  absl::btree_map<OrderingKey, RequestEntry*> in_order_;  // those of locality_
  absl::btree_map<OrderingKey, RequestEntry*> named_;
};

}  // namespace troupe::node
