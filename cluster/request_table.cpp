// Arrival, choice and sending; request_outcomes.cpp has what happens after.
#include "cluster/request_table.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::cluster {

RequestTable::RequestTable(RouterLimits limits, RoutingPolicy routing, OrderingPolicy ordering)
    : limits_(limits), routing_(routing), ordering_(ordering) {
  TROUPE_CHECK(routing_ != nullptr && ordering_.rank != nullptr, "every slot of the router needs a policy");
  if (ordering_.slo != nullptr) slo_.emplace(*ordering_.slo);
  if (ordering_.late != nullptr) late_.emplace(*ordering_.late);
}

// How long until the queue as it is has been served.
Duration RequestTable::RetryAfter() const {
  const Duration interval = service_interval_.Or(std::chrono::milliseconds(10));
  const auto waiting = static_cast<Duration::rep>(this->waiting() + 1);
  const Duration estimate =
      interval > limits_.longest_retry_after / waiting ? limits_.longest_retry_after : interval * waiting;
  return std::clamp(estimate, limits_.shortest_retry_after, limits_.longest_retry_after);
}

Admission RequestTable::Admit(const RouterRequest& request, Time now) {
  TROUPE_CHECK(!requests_.contains(request.sequence), "a sequence was used twice");
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
  if (request.call.call != 0 && !calls_.emplace(request.call, request.sequence).second) {
    return refuse(absl::InvalidArgumentError("the caller has used this call number already"));
  }
  Entry entry;
  entry.request = request;
  entry.arrival = now;
  const Duration timeout = request.timeout > Duration::zero() ? request.timeout : limits_.default_timeout;
  entry.expiry = now + std::min(timeout, limits_.longest_timeout);
  if (request.deadline > Duration::zero())
    entry.deadline = now + std::min(request.deadline, limits_.longest_timeout);
  entry.key = MakeOrderingKey(
      ordering_, {.priority = request.priority, .arrival = now, .deadline = entry.deadline}, next_order_++);
  if (late_) entry.latest = LatestBegin(entry.deadline, costs_.RunTime(request.model), now);
  if (late_ && entry.deadline != Time::max() && late_->Yields(request.function))
    entry.key = LateKey(entry.key);
  expiries_.emplace(entry.expiry, request.sequence);
  functions_[{request.function, request.version}].insert(request.sequence);
  waiting_bytes_ += request.bytes;
  ++counts_.admitted;
  Enqueue(requests_.emplace(request.sequence, std::move(entry)).first->second);
  return {};
}

// --- The index of what each node could take ---

void RequestTable::Unindex(const std::string& model) {
  const auto* waiting = queue_.Find(model);
  const auto* holders = credits_.Holders(model);
  if (waiting == nullptr || holders == nullptr) return;
  for (const std::string& node : *holders) eligible_[node].erase(Head{waiting->begin()->first, {}});
}

void RequestTable::Index(const std::string& model) {
  const auto* waiting = queue_.Find(model);
  const auto* holders = credits_.Holders(model);
  if (waiting == nullptr || holders == nullptr) return;
  for (const std::string& node : *holders) eligible_[node].insert(Head{waiting->begin()->first, model});
}

void RequestTable::Enqueue(Entry& entry) {
  if (slo_) entry.key.place = slo_->PlaceOf(entry.request.function);
  if (late_) late_->Add(entry.key, entry.latest, entry.request.sequence);
  Unindex(entry.request.model);
  queue_.Add(entry.request.model, entry.key, entry.request.sequence);
  Index(entry.request.model);
  entry.place = Place::kQueued;
}

void RequestTable::Dequeue(Entry& entry) {
  if (late_) late_->Remove(entry.key, entry.latest);
  Unindex(entry.request.model);
  queue_.Remove(entry.request.model, entry.key);
  Index(entry.request.model);
}

// Functions may have changed places: what waits gets new keys.
void RequestTable::Reorder(Time now) {
  if (!slo_ || !slo_->Reorder(now)) return;
  for (auto& [sequence, entry] : requests_) {
    if (entry.place != Place::kQueued || slo_->PlaceOf(entry.request.function) == entry.key.place) continue;
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
  if (!late_) return;
  while (const auto sequence = late_->NextLate(now)) {
    Entry& entry = requests_.at(*sequence);
    Rekey(entry, LateKey(entry.key));
  }
}

// A request was sent, and is in the queue no more.
void RequestTable::GiveTurn(const Entry& gone) {
  if (!late_) return;
  const auto next = late_->Gone(gone.key);
  if (!next) return;
  Entry& entry = requests_.at(*next);
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
  pauses_.emplace(until, entry.request.sequence);
}

void RequestTable::WakeDue(Time now) {
  while (!pauses_.empty() && pauses_.begin()->first <= now) {
    Entry& entry = requests_.at(pauses_.begin()->second);
    pauses_.erase(pauses_.begin());
    Enqueue(entry);
  }
  reopenings_.erase(reopenings_.begin(), reopenings_.upper_bound(now));
}

// --- The choice ---

// Half of a node's places are for what can still be met: there it would wait for what is late.
bool RequestTable::HasPlace(const NodeCredit& node, const Entry& entry) const {
  return !late_ || !IsLate(entry.key) || 2 * node.in_flight < node.limit;
}

// The most urgent request that some node with a credit can take. Looks at the first eligible model of each
// node, and beyond it only past requests that this node has refused; late ones that it has no place for stop
// it, since what comes behind them is late, too, or of a lower priority.
RequestTable::Entry* RequestTable::MostUrgent(Time now) {
  Entry* best = nullptr;
  for (const auto& [name, node] : credits_.nodes()) {
    if (!node.Open(now)) continue;
    const auto heads = eligible_.find(name);
    if (heads == eligible_.end()) continue;
    for (const Head& head : heads->second) {
      if (best != nullptr && best->key < head.key) break;
      Entry& entry = requests_.at(queue_.Find(head.model)->begin()->second);
      if (entry.refused_by.contains(name)) continue;
      if (!HasPlace(node, entry)) break;
      best = &entry;
      break;
    }
  }
  return best;
}

std::string RequestTable::ChooseNode(const Entry& entry, Time now) const {
  std::vector<NodeOption> options;
  for (const std::string& name : *credits_.Holders(entry.request.model)) {
    const NodeCredit& node = *credits_.Find(name);
    if (!node.Open(now) || entry.refused_by.contains(name) || !HasPlace(node, entry)) continue;
    options.push_back({.name = name,
                       .resident = node.resident.contains(entry.request.model),
                       .in_flight = node.in_flight,
                       .limit = node.limit});
  }
  TROUPE_CHECK(!options.empty(), "a request was chosen that no node can take");
  const std::size_t choice = routing_(options);
  TROUPE_CHECK(choice < options.size(), "the routing policy chose a node that was not offered");
  return std::string(options[choice].name);
}

Send RequestTable::MakeSend(Entry& entry, const std::string& node, Time now) {
  Dequeue(entry);
  GiveTurn(entry);
  entry.place = Place::kSent;
  entry.node = node;
  counts_.retried += entry.attempts > 0 ? 1 : 0;
  ++entry.attempts;
  ++sent_;
  waiting_bytes_ -= entry.request.bytes;
  credits_.Take(node);
  const std::uint64_t ticket = next_ticket_++;
  sendings_[ticket] = {.sequence = entry.request.sequence, .node = node};
  Send send;
  send.ticket = ticket;
  send.sequence = entry.request.sequence;
  send.node = node;
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
  while (!queue_.empty()) {
    Entry* entry = MostUrgent(now);
    if (entry == nullptr) break;
    if (entry->expiry <= now) break;  // Expire comes first
    sends.push_back(MakeSend(*entry, ChooseNode(*entry, now), now));
  }
  return sends;
}

Time RequestTable::NextDue() const {
  Time due = Time::max();
  if (!expiries_.empty()) due = std::min(due, expiries_.begin()->first);
  if (!pauses_.empty()) due = std::min(due, pauses_.begin()->first);
  if (!reopenings_.empty() && !queue_.empty()) due = std::min(due, *reopenings_.begin());
  return due;
}

void RequestTable::Check() const {
  std::size_t sent = 0;
  std::size_t queued = 0;
  std::size_t late = 0;
  Bytes bytes;
  for (const auto& [sequence, entry] : requests_) {
    sent += entry.place == Place::kSent ? 1 : 0;
    queued += entry.place == Place::kQueued ? 1 : 0;
    late += entry.place == Place::kQueued && IsLate(entry.key) ? 1 : 0;
    if (entry.place != Place::kSent) bytes += entry.request.bytes;
  }
  TROUPE_CHECK(sent == sent_ && queued == queue_.size() && queued + sent + pauses_.size() == requests_.size(),
               "a request is neither waiting nor sent");
  TROUPE_CHECK(!late_ || late == late_->late(), "late requests are counted wrong");
  TROUPE_CHECK(bytes == waiting_bytes_, "the bytes of waiting requests are counted wrongly");
  TROUPE_CHECK(counts_.admitted ==
                   counts_.served + counts_.failed + counts_.expired + counts_.cancelled + requests_.size(),
               "requests were lost or ended twice");
  std::map<std::string, std::uint64_t> in_flight;
  for (const auto& [ticket, sending] : sendings_) ++in_flight[sending.node];
  for (const auto& [name, node] : credits_.nodes()) {
    TROUPE_CHECK(node.in_flight == in_flight[name], "credits were lost or came back twice");
  }
}

}  // namespace troupe::cluster
