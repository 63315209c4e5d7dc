// REQUEST TABLE: every request of one router from arrival to answer: the bounded queue of those that no node
// has taken yet, the choice of where each goes, credits, retries, timeouts and cancellation. The router actor
// owns it and only moves messages: after any call it sends what Decide(now) gives, answers what is finished,
// and arms one timer at NextDue() for Expire.
//
//   waiting -> sent -> finished            exactly one Finished per admitted request
//   sent -> waiting                        bounced (no attempt is counted but for workers that died with it),
//                                          or its node died (counted: at most 3)
//
// Always true: admitted = served + failed + expired + cancelled + waiting + sent (Check).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "cluster/credit_table.hpp"
#include "cluster/requests/pauses.hpp"
#include "cluster/requests/placement.hpp"
#include "cluster/requests/request_entry.hpp"
#include "cluster/requests/request_index.hpp"
#include "cluster/requests/request_order.hpp"
#include "cluster/requests/sendings.hpp"
#include "cluster/requests/service_pace.hpp"
#include "cluster/routing_policy.hpp"
#include "proto/request.pb.h"
#include "scheduling/slo_order.hpp"

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

struct Send {
  std::uint64_t ticket = 0;  // of this sending; its reply is reported with it
  std::uint64_t sequence = 0;
  std::string node{};
  std::optional<std::uint32_t> gpu{};  // of the node, that the request names; empty: the node chooses
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
  RequestTable(const RequestTable&) = delete;
  RequestTable& operator=(const RequestTable&) = delete;

  [[nodiscard]] Admission Admit(const RouterRequest& request, Time now);
  [[nodiscard]] std::vector<Send> Decide(Time now);

  // Replies, by the ticket of the Send. One for a request that is finished (expired, cancelled) or was sent
  // anew gives back the credit and nothing else.
  // `run`: how long the run took that found its model on the GPU; zero: not known.
  std::vector<RequestFinished> Served(std::uint64_t ticket, const absl::Status& status, Time now,
                                      Duration run = {});
  // `attempts`: workers that died with the request, where it names a GPU.
  std::vector<RequestFinished> Bounced(std::uint64_t ticket, proto::BounceReason reason,
                                       const std::string& message, Time now, std::uint32_t attempts = 0);
  // The call failed (timeout, connection) though the node is not known to be dead: its attempt is lost.
  std::vector<RequestFinished> CallFailed(std::uint64_t ticket, const std::string& why, Time now);
  // The request ended while it was made ready to be sent: the node never hears of it, and its credit is free.
  std::vector<RequestFinished> NeverSent(std::uint64_t ticket, Time now);

  // Nodes. A grant of a newer epoch says that the node has joined a manager again: what it was sent before it
  // has still. Only a node that is gone has lost it, also when it is back at once: NodeLost comes before the
  // grants of its next life.
  void Apply(const proto::CreditGrant& grant);
  std::vector<RequestFinished> NodeLost(const std::string& node, const std::string& why);
  // The kinds of GPU that each node has: where they differ, a request's profiles say what it takes at each.
  void SetKinds(std::map<std::string, GpuKinds> by_node) { placement_.SetKinds(std::move(by_node)); }

  // Functions: waiting requests of a removed or unloaded one end with `status` (NotFound, Unavailable).
  std::vector<RequestFinished> FunctionGone(const std::string& function, const std::string& version,
                                            const absl::Status& status);

  std::vector<RequestFinished> Expire(Time now);
  [[nodiscard]] Time NextDue() const;
  // Empty: unknown or finished.
  std::vector<RequestFinished> Cancel(const CallId& call);
  std::vector<RequestFinished> CancelSequence(std::uint64_t sequence);

  // Whether its requests name GPUs, of which nodes are to tell.
  [[nodiscard]] bool names_gpus() const { return placement_.by_gpu(); }
  [[nodiscard]] const CreditTable& credits() const { return credits_; }
  [[nodiscard]] const RequestCounts& counts() const { return counts_; }
  [[nodiscard]] std::size_t waiting() const { return requests_.size() - sent_; }
  [[nodiscard]] std::uint64_t WaitingOf(const std::string& function, const std::string& version) const {
    return requests_.WaitingOf(function, version);
  }
  [[nodiscard]] std::size_t sent() const { return sent_; }
  [[nodiscard]] Duration RetryAfter() const;
  [[nodiscard]] double alpha() const { return order_.alpha(); }  // as RequestOrder's
  void Check() const;

 private:
  using Entry = RequestEntry;
  using Place = RequestPlace;
  using Finished = std::vector<RequestFinished>;

  RequestFinished End(Entry& entry, RequestEnd end, absl::Status status);
  void Enqueue(Entry& entry);
  void Dequeue(Entry& entry);
  void Pause(Entry& entry, Time until);
  void CloseNode(const std::string& node, Time now);
  void WakeDue(Time now);
  void Reorder(Time now);
  void Rekey(Entry& entry, const OrderingKey& key);
  void YieldLate(Time now);
  void GiveTurn(const Entry& gone);
  Send MakeSend(Entry& entry, const Placement::Target& target, Time now);
  // Gives back what the request was sent with. `entry` is null when no request waits for this reply any more; nothing: its
  // node was lost, and what that held was sent anew.
  struct Reply {
    Sendings::Sending sending{};
    Entry* entry = nullptr;
  };
  std::optional<Reply> TakeReply(std::uint64_t ticket, Time now);
  void LoseAttempt(Entry& entry, const std::string& why, Finished& finished);
  [[nodiscard]] bool RefusedByAll(const Entry& entry, Time now) const;
  [[nodiscard]] absl::Status TimeoutStatus(const Entry& entry, Time now) const;

  const RouterLimits limits_;
  RequestIndex requests_;
  RequestOrder order_;
  CreditTable credits_;
  Placement placement_;
  Pauses pauses_;
  Sendings sendings_;
  Bytes waiting_bytes_;
  std::size_t sent_ = 0;
  ServicePace pace_;
  RequestCounts counts_;
};

}  // namespace troupe::cluster
