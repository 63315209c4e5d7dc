// REQUEST TABLE: every request of one router from arrival to answer: the bounded queue of those that no node
// has taken yet, the choice of where each goes, credits, retries, timeouts and cancellation. The router actor
// owns it and only moves messages: after any call it sends what Decide(now) gives, answers what is finished,
// and arms one timer at NextDue() for Expire.
//
//   waiting -> sent -> finished            exactly one Finished per admitted request
//   sent -> waiting                        bounced (no attempt is counted), or its node died (counted: at
//                                          most 3)
//
// Always true: admitted = served + failed + expired + cancelled + waiting + sent (Check).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/cost_model.hpp"
#include "base/late_queue.hpp"
#include "base/model_queue.hpp"
#include "base/slo_order.hpp"
#include "base/units.hpp"
#include "cluster/credit_table.hpp"
#include "cluster/routing_policy.hpp"
#include "proto/request.pb.h"

namespace troupe::cluster {

struct RouterLimits {
  std::size_t max_requests = 4096;  // waiting; more get ResourceExhausted with a Retry-After
  Bytes max_bytes = MiB(256);       // of inline inputs that wait
  std::uint32_t max_attempts = 3;   // nodes or workers that a request may lose
  std::uint32_t max_bounces = 64;   // refusals before a request fails
  Duration default_timeout = std::chrono::seconds(30);
  Duration longest_timeout = std::chrono::hours(1);
  Duration bounce_pause =
      std::chrono::milliseconds(50);  // before a request that no node takes is offered again
  Duration shortest_retry_after = std::chrono::milliseconds(50);
  Duration longest_retry_after = std::chrono::seconds(10);
};

// Who asked, so that a cancellation finds its request. `call` 0 cannot be cancelled.
struct CallId {
  std::uint64_t caller = 0;
  std::uint64_t call = 0;
  auto operator<=>(const CallId&) const = default;
};

// A request as the table sees it; the tensors stay with the router.
struct RouterRequest {
  std::uint64_t sequence = 0;  // the router's number, never used twice
  CallId call{};
  std::string function{};  // name and version as resolved
  std::string version{};
  std::string model{};
  std::uint32_t priority = 0;
  Duration deadline{};    // the function's SLO, from arrival; zero: none
  double percentile = 0;  // of the SLO; 0: the default
  Duration timeout{};     // the client's expiry, from arrival; zero: the router's default
  Bytes bytes{};          // inline input bytes
};

struct Send {
  std::uint64_t ticket = 0;  // of this sending; its reply is reported with it
  std::uint64_t sequence = 0;
  std::string node{};
  std::uint64_t node_epoch = 0;
  std::uint32_t attempt = 1;
  Duration deadline_in{};  // from now; negative when it has passed
  Duration timeout_in{};   // from now, positive
  Duration queued{};       // since arrival
  double percentile = 0;   // of the function's SLO
};

enum class RequestEnd { kServed, kFailed, kExpired, kCancelled };
struct RequestFinished {
  std::uint64_t sequence = 0;
  RequestEnd end = RequestEnd::kServed;
  absl::Status
      status;  // for the client, unless the node's own reply is handed on (kServed, kFailed by Served())
  Duration retry_after{};  // with Unavailable and ResourceExhausted
  std::uint32_t attempts = 0;
  std::string
      node{};  // of the last attempt; not empty and end is expired or cancelled: tell it (CancelSubmit)
};

struct Admission {
  absl::Status status{};  // not OK: refused, nothing is kept
  Duration retry_after{};
};

struct RequestCounts {
  std::uint64_t admitted = 0, rejected = 0, served = 0, failed = 0, expired = 0, cancelled = 0;
  std::uint64_t bounced = 0, retried = 0;
};

class RequestTable {
 public:
  RequestTable(RouterLimits limits, RoutingPolicy routing, OrderingPolicy ordering);

  [[nodiscard]] Admission Admit(const RouterRequest& request, Time now);
  [[nodiscard]] std::vector<Send> Decide(Time now);

  // Replies, by the ticket of the Send. One for a request that is finished (expired, cancelled) or was sent
  // anew gives back the credit and nothing else.
  // `run`: how long the run took that found its model on the GPU; zero: not known.
  std::vector<RequestFinished> Served(std::uint64_t ticket, const absl::Status& status, Time now,
                                      Duration run = {});
  std::vector<RequestFinished> Bounced(std::uint64_t ticket, proto::BounceReason reason,
                                       const std::string& message, Time now);
  // The call failed (timeout, connection) though the node is not known to be dead: its attempt is lost.
  std::vector<RequestFinished> CallFailed(std::uint64_t ticket, const std::string& why, Time now);

  // Nodes. A grant of a newer epoch says that the node has joined a manager again: what it was sent before it
  // has still. Only a node that is gone has lost it, also when it is back at once: NodeLost comes before the
  // grants of its next life.
  void Apply(const proto::CreditGrant& grant);
  std::vector<RequestFinished> NodeLost(const std::string& node, const std::string& why);

  // Functions: waiting requests of a removed or unloaded one end with `status` (NotFound, Unavailable).
  std::vector<RequestFinished> FunctionGone(const std::string& function, const std::string& version,
                                            const absl::Status& status);

  std::vector<RequestFinished> Expire(Time now);
  [[nodiscard]] Time NextDue() const;
  // Empty: unknown or finished.
  std::vector<RequestFinished> Cancel(const CallId& call);
  std::vector<RequestFinished> CancelSequence(std::uint64_t sequence);

  [[nodiscard]] const CreditTable& credits() const { return credits_; }
  [[nodiscard]] const RequestCounts& counts() const { return counts_; }
  [[nodiscard]] std::size_t waiting() const { return requests_.size() - sent_; }
  [[nodiscard]] std::size_t sent() const { return sent_; }
  [[nodiscard]] Duration RetryAfter() const;
  void Check() const;

 private:
  enum class Place { kQueued, kPaused, kSent };
  struct Entry {
    RouterRequest request;
    OrderingKey key;
    Time arrival{};
    Time deadline = Time::max();
    Time latest = Time::max();  // when it has to begin to be in time, where late ones yield
    Time expiry{};
    Time resume{};  // while paused
    Place place = Place::kQueued;
    std::uint32_t attempts = 0;
    std::uint32_t bounces = 0;
    std::string node{};  // of the last attempt
    std::string last_refusal{};
    std::set<std::string> refused_by{};  // until it was paused
  };
  struct Sending {
    std::uint64_t sequence = 0;
    std::string node{};
  };
  using Finished = std::vector<RequestFinished>;
  using Head = ModelQueue<std::uint64_t>::Head;

  RequestFinished End(Entry& entry, RequestEnd end, absl::Status status);
  void Enqueue(Entry& entry);
  void Dequeue(Entry& entry);
  void Pause(Entry& entry, Time until);
  void WakeDue(Time now);
  void Reorder(Time now);
  void Rekey(Entry& entry, const OrderingKey& key);
  void YieldLate(Time now);
  void GiveTurn(const Entry& gone);
  void CountForSlo(const Entry& entry, const absl::Status& status, Time now);
  void Unindex(const std::string& model);  // before a change of its head or its holders
  void Index(const std::string& model);    // after it
  [[nodiscard]] bool HasPlace(const NodeCredit& node, const Entry& entry) const;
  [[nodiscard]] Entry* MostUrgent(Time now);
  [[nodiscard]] std::string ChooseNode(const Entry& entry, Time now) const;
  Send MakeSend(Entry& entry, const std::string& node, Time now);
  Entry* TakeReply(std::uint64_t ticket, std::string* node);
  void LoseAttempt(Entry& entry, const std::string& why, Finished& finished);
  [[nodiscard]] bool RefusedByAll(const Entry& entry) const;
  [[nodiscard]] absl::Status TimeoutStatus(const Entry& entry, Time now) const;

  RouterLimits limits_;
  RoutingPolicy routing_;
  OrderingPolicy ordering_;
  std::optional<SloOrder> slo_;
  std::optional<LateQueue<std::uint64_t>> late_;
  CostModel costs_{{.run = Duration::zero()}};  // of runs that found their models, where late ones yield
  CreditTable credits_;
  std::map<std::uint64_t, Entry> requests_;
  ModelQueue<std::uint64_t> queue_;
  std::map<std::string, std::set<Head>> eligible_;  // by node: first requests of the models that it holds
  std::map<std::uint64_t, Sending> sendings_;       // replies that are due, by ticket
  std::map<CallId, std::uint64_t> calls_;
  std::map<std::pair<std::string, std::string>, std::set<std::uint64_t>> functions_;  // by name and version
  std::set<std::pair<Time, std::uint64_t>> expiries_;
  std::set<std::pair<Time, std::uint64_t>> pauses_;
  std::set<Time> reopenings_;  // of nodes that refused
  Bytes waiting_bytes_;
  std::size_t sent_ = 0;
  std::uint64_t next_order_ = 0;
  std::uint64_t next_ticket_ = 1;
  RunningEstimate service_interval_;
  Time last_served_{};
  RequestCounts counts_;
};

}  // namespace troupe::cluster
