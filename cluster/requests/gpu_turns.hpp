// GPU TURNS: a router's decision GPU by GPU: each idle GPU of the cluster takes a waiting request. With a limit this is
// locality-aware load balancing (LALB, 003, Algorithms 1 and 2): a GPU takes the first request whose model it has; else the
// first request that has no better place. A better place is an idle GPU that has the model, or a busy GPU that will have run
// the request sooner than the model could be loaded and the request run here. Without a limit each GPU takes the most
// urgent request.
//
// By index (003, section VI): a turn looks at models that the GPU has, at GPUs that have a model, and at the first request
// of each model; what was passed too often is kept apart. A request counts as passed only where a GPU could have taken it,
// and at most limit + 1 times in its life.
//
// The queue of a GPU is at its node: a request that is sent to a busy GPU waits there, and no other GPU takes it. Only so
// many are sent as the node grants credits for; beyond them a request stays in the router's queue until a credit is back.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/functional/function_ref.h"
#include "cluster/requests/cluster_gpus.hpp"
#include "cluster/requests/eligible_queue.hpp"
#include "cluster/requests/request_index.hpp"
#include "cluster/routing_policy.hpp"

namespace troupe::cluster {

class GpuTurns {
 public:
  // What the request is expected to take of the GPU, its load included where the model has to come.
  using SendTo = absl::FunctionRef<void(RequestEntry&, const GpuPlace&, Duration work)>;

  // `requests`, `waiting` and `credits` outlive this.
  GpuTurns(const GpuRouting& rules, RequestIndex& requests, const EligibleQueue& waiting,
           const CreditTable& credits);

  // A request waits from now on, or waits no more.
  void Add(const RequestEntry& entry);
  void Remove(const RequestEntry& entry);
  // Before and after a change of the model's holders; and after a node was lost.
  void Unindex(const std::string& model) { overdue_.Unindex(model); }
  void Index(const std::string& model) { overdue_.Index(model); }
  void Forget(const std::string& node);

  // `send` takes the request out of the queue.
  void Decide(Time now, SendTo send);

  // Why no request of the model can be placed by GPU, though nodes hold it; empty: it can.
  [[nodiscard]] std::string Refusal(const std::string& model) const;
  [[nodiscard]] ClusterGpus& gpus() { return gpus_; }
  [[nodiscard]] const ClusterGpus& gpus() const { return gpus_; }
  void Check() const;

 private:
  // A request that waits, as one turn looks at it.
  struct Found {
    RequestEntry* entry = nullptr;  // null: there is none
    OrderingKey key{};
  };
  // Requests that wait here for a busy GPU without a credit left. One decision looks at each of them once.
  struct Waits {
    std::map<GpuPlace, Duration> queued{};      // what they will take of it
    std::map<std::string, OrderingKey> seen{};  // by model: the last one
  };
  void Turn(const GpuPlace& place, Time now, SendTo send, Waits& waits);
  void FirstTurn(const GpuPlace& place, Time now, SendTo send);
  // Places the request. True: on the GPU whose turn it is.
  bool Place(const Found& found, const GpuPlace& self, Time now, SendTo send, Waits& waits);
  // Algorithm 2, asked by the idle GPU `self`, which could take the request.
  [[nodiscard]] GpuPlace PlaceFor(const RequestEntry& entry, const GpuPlace& self, Time now,
                                  const Waits& waits) const;
  // The most urgent request of `queue` that the GPU may be given.
  [[nodiscard]] Found First(const EligibleQueue& queue, const GpuPlace& place, Time now,
                            const Waits& waits) const;
  [[nodiscard]] Found FirstHit(const GpuPlace& place, Time now) const;
  // Behind `seen`, which may be null.
  [[nodiscard]] Found FirstOf(const EligibleQueue& queue, const std::string& model, const GpuPlace& place,
                              Time now, const OrderingKey* seen) const;
  // The node's GPU has passed what it could have taken, and what is more urgent than `end`; empty: all of it.
  void Count(const std::string& node, const std::optional<OrderingKey>& end);
  [[nodiscard]] bool Open(const std::string& node, Time now) const;
  // All its credits are in use, so that the next reply gives one back.
  [[nodiscard]] bool IsSpent(const std::string& node, Time now) const;
  [[nodiscard]] bool MayRunAt(const RequestEntry& entry, const std::string& node, Time now) const;
  [[nodiscard]] Duration RunOn(const RequestEntry& entry, const GpuPlace& place) const;
  // With its load where the model is not there.
  [[nodiscard]] Duration WorkOn(const RequestEntry& entry, const GpuPlace& place) const;

  const GpuRouting rules_;
  RequestIndex& requests_;
  const EligibleQueue& waiting_;
  const CreditTable& credits_;
  ClusterGpus gpus_;
  EligibleQueue overdue_;  // the waiting requests that were passed more often than the limit
  std::map<std::string, std::set<OrderingKey>> young_;  // the others, by model
};

}  // namespace troupe::cluster
