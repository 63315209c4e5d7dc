// Arrival, choice and sending; request_outcomes.cpp has what happens after.
#include "cluster/request_table.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::cluster {

RequestTable::RequestTable(RouterLimits limits, RoutingPolicy routing, OrderingPolicy ordering)
    : limits_(limits), order_(ordering), placement_(routing, requests_, order_, credits_) {}

// How long until the queue as it is has been served.
Duration RequestTable::RetryAfter() const {
  const Duration estimate = pace_.Until(waiting() + 1, limits_.longest_retry_after);
  return std::clamp(estimate, limits_.shortest_retry_after, limits_.longest_retry_after);
}

Admission RequestTable::Admit(const RouterRequest& request, Time now) {
  TROUPE_CHECK(!requests_.Contains(request.sequence), "a sequence was used twice");
  const auto refuse = [&](absl::Status status) {
    ++counts_.rejected;
    return Admission{.status = std::move(status), .retry_after = RetryAfter()};
  };
  if (waiting() >= limits_.max_requests) {
    return refuse(absl::ResourceExhaustedError(
        absl::StrCat(waiting(), " requests wait already, the limit of this gateway; try again later")));
  }
  if (waiting_bytes_ + request.bytes > limits_.max_bytes) {
    return refuse(absl::ResourceExhaustedError(absl::StrCat(
        "waiting requests hold ", FormatBytes(waiting_bytes_), " and this one has ",
        FormatBytes(request.bytes), "; the limit of this gateway is ", FormatBytes(limits_.max_bytes))));
  }
  if (requests_.HasCall(request.call)) {
    return refuse(absl::InvalidArgumentError("the caller has used this call number already"));
  }
  if (const std::string why = placement_.Refusal(request.model); !why.empty()) {
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("function '", request.function, "': this gateway names the GPU of each request, and ",
                     why, "; give it a routing policy by node, or the nodes GPUs that they tell of")));
  }
  Entry entry;
  entry.request = request;
  entry.arrival = now;
  const Duration timeout = request.timeout > Duration::zero() ? request.timeout : limits_.default_timeout;
  entry.expiry = now + std::min(timeout, limits_.longest_timeout);
  if (request.deadline > Duration::zero())
    entry.deadline = now + std::min(request.deadline, limits_.longest_timeout);
  order_.Begin(entry, now);
  waiting_bytes_ += request.bytes;
  ++counts_.admitted;
  Enqueue(requests_.Add(std::move(entry)));
  return {};
}

// --- The queue ---

void RequestTable::Enqueue(Entry& entry) {
  order_.Enter(entry);
  placement_.Add(entry);
  entry.place = Place::kQueued;
}

void RequestTable::Dequeue(Entry& entry) {
  order_.Leave(entry);
  placement_.Remove(entry);
}

// Functions may have changed places: what waits gets new keys.
void RequestTable::Reorder(Time now) {
  if (!order_.Reorder(now)) return;
  for (auto& [sequence, entry] : requests_.all()) {
    if (entry.place != Place::kQueued || !order_.Moved(entry)) continue;
    Dequeue(entry);
    Enqueue(entry);
  }
}

void RequestTable::Rekey(Entry& entry, const OrderingKey& key) {
  Dequeue(entry);
  entry.key = key;
  Enqueue(entry);
}

void RequestTable::YieldLate(Time now) {
  while (const auto sequence = order_.NextLate(now)) {
    Entry& entry = requests_.At(*sequence);
    Rekey(entry, LateKey(entry.key));
  }
}

// A request was sent, and is in the queue no more.
void RequestTable::GiveTurn(const Entry& gone) {
  const auto next = order_.Gone(gone);
  if (!next) return;
  Entry& entry = requests_.At(*next);
  OrderingKey key = entry.key;
  key.place = {};
  entry.latest = Time::max();
  Rekey(entry, key);
}

// Every node that holds its model has refused it: it is offered again after a moment.
void RequestTable::Pause(Entry& entry, Time until) {
  entry.place = Place::kPaused;
  entry.resume = until;
  entry.refused_by.clear();
  pauses_.Add(until, entry.request.sequence);
}

// The node takes nothing for a moment.
void RequestTable::CloseNode(const std::string& node, Time now) {
  credits_.Close(node, now + limits_.bounce_pause);
  pauses_.AddRefusal(now + limits_.bounce_pause);
}

void RequestTable::WakeDue(Time now) {
  while (const auto sequence = pauses_.TakeDue(now)) Enqueue(requests_.At(*sequence));
  pauses_.ForgetRefusalsDue(now);
}

Send RequestTable::MakeSend(Entry& entry, const Placement::Target& target, Time now) {
  const std::string& node = target.node;
  Dequeue(entry);
  GiveTurn(entry);
  entry.place = Place::kSent;
  entry.node = node;
  counts_.retried += entry.attempts > 0 ? 1 : 0;
  ++entry.attempts;
  ++sent_;
  waiting_bytes_ -= entry.request.bytes;
  credits_.Take(node);
  Send send;
  send.ticket = sendings_.Add({entry.request.sequence, node, target.gpu, target.work});
  placement_.Sent(send.ticket, entry, target, now);
  send.sequence = entry.request.sequence;
  send.node = node;
  send.gpu = target.gpu;
  send.node_epoch = credits_.Find(node)->epoch;
  send.attempt = entry.attempts;
  send.deadline_in = entry.deadline == Time::max() ? Duration::max() : entry.deadline - now;
  send.timeout_in = entry.expiry - now;
  send.queued = now - entry.arrival;
  send.percentile = entry.request.percentile;
  return send;
}

std::vector<Send> RequestTable::Decide(Time now) {
  WakeDue(now);
  Reorder(now);
  YieldLate(now);
  std::vector<Send> sends;
  placement_.Decide(now, [&](Entry& entry, const Placement::Target& target) {
    sends.push_back(MakeSend(entry, target, now));
  });
  return sends;
}

Time RequestTable::NextDue() const {
  return std::min(requests_.NextExpiry(), pauses_.NextDue(!placement_.empty()));
}

void RequestTable::Check() const {
  std::size_t sent = 0;
  std::size_t queued = 0;
  std::size_t late = 0;
  Bytes bytes;
  for (const auto& [sequence, entry] : requests_.all()) {
    sent += entry.place == Place::kSent ? 1 : 0;
    queued += entry.place == Place::kQueued ? 1 : 0;
    late += entry.place == Place::kQueued && IsLate(entry.key) ? 1 : 0;
    if (entry.place != Place::kSent) bytes += entry.request.bytes;
  }
  TROUPE_CHECK(
      sent == sent_ && queued == placement_.size() && queued + sent + pauses_.requests() == requests_.size(),
      "a request is neither waiting nor sent");
  TROUPE_CHECK(late == order_.CountLate().value_or(late), "late requests are counted wrong");
  TROUPE_CHECK(bytes == waiting_bytes_, "the bytes of waiting requests are counted wrongly");
  TROUPE_CHECK(counts_.admitted ==
                   counts_.served + counts_.failed + counts_.expired + counts_.cancelled + requests_.size(),
               "requests were lost or ended twice");
  placement_.Check();
  auto in_flight = sendings_.SumByNode();
  for (const auto& [name, node] : credits_.nodes()) {
    TROUPE_CHECK(node.in_flight == in_flight[name].requests, "credits were lost or came back twice");
    TROUPE_CHECK(names_gpus() || placement_.WorkAt(name) == in_flight[name].work,
                 "what a node was given to do is added up wrongly");
  }
}

}  // namespace troupe::cluster
