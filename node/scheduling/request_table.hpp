// REQUEST TABLE: the requests that the scheduler knows, how they come in and how they end: exactly one Finished
// for each that was accepted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/node_hash_map.h"
#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

struct SchedulerParts;

class RequestTable {
 public:
  RequestTable(SchedulerParts& parts, SchedulerTables& tables) : parts_(parts), tables_(tables) {}

  Submitted Submit(const NodeRequest& request, Time now);
  Cancelled Cancel(const RequestId& id);
  Consequences ForgetRouter(std::uint64_t router);
  Consequences Expire(Time now);
  // Takes the request out of every table. It is in no pipeline any more.
  Finished End(RequestEntry& entry, FinishKind kind, absl::Status status,
               proto::BounceReason bounce = proto::BOUNCE_UNSPECIFIED);
  // The run ended after its request was cancelled, or had expired. True when the request ended here.
  bool EndAbandoned(RequestEntry& entry, Consequences& effects);
  // Waiting requests that no GPU of this node can serve any more.
  void EndUnplaceable(Consequences& effects);
  // Back to its old place in the queue, or to its end.
  void Requeue(RequestEntry& entry, Consequences& effects);
  // Functions may have changed places: what waits gets new keys.
  void Reorder(Time now);
  // Requests that are wrong in themselves say nothing about how the function is served.
  void CountForSlo(const RequestEntry& entry, const absl::Status& status, Time now);

  // Another request of its function is on a GPU, and the rules allow one at a time. Functions that share a
  // model share the turn of the first of them.
  [[nodiscard]] bool MustTakeTurns(const RequestEntry& entry) const;
  void LeaveFunction(const RequestEntry& entry);
  [[nodiscard]] FunctionEntry& FunctionOf(const RequestEntry& entry) {
    return serving_[entry.request.function.value()];
  }

  // Null: it is not here, or has ended.
  [[nodiscard]] RequestEntry* Find(const RequestId& id) {
    const auto it = requests_.find(id);
    return it == requests_.end() ? nullptr : &it->second;
  }
  [[nodiscard]] RequestEntry& At(const RequestId& id) { return requests_.at(id); }
  [[nodiscard]] const absl::node_hash_map<RequestId, RequestEntry>& all() const { return requests_; }
  [[nodiscard]] std::size_t size() const { return requests_.size(); }
  [[nodiscard]] std::size_t trials() const { return trials_; }
  [[nodiscard]] Time NextExpiry() const { return expiries_.empty() ? Time::max() : expiries_.begin()->first; }
  void Check() const;

 private:
  [[nodiscard]] Finished Refuse(const NodeRequest& request, Time now) const;
  [[nodiscard]] absl::Status CannotFit(const std::string& function, const ModelEntry& model) const;
  void EnterFunction(const FunctionNumber& function);
  void LeaveNode(const RequestEntry& entry);
  void Count(FinishKind kind);

  SchedulerParts& parts_;
  SchedulerTables& tables_;
  absl::node_hash_map<RequestId, RequestEntry> requests_;
  absl::btree_set<std::pair<Time, RequestId>> expiries_;
  std::vector<FunctionEntry> serving_;  // by number of the function; empty without requests
  std::uint64_t next_sequence_ = 0;
  std::size_t trials_ = 0;  // of requests_
};

}  // namespace troupe::node
