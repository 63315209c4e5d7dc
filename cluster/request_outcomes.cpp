// What becomes of requests after they were admitted: replies, refusals, deaths, timeouts, cancellations.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "cluster/request_table.hpp"

namespace troupe::cluster {

// Takes the request out of every table but `sendings_`: the credit of a request that was sent comes back with
// its reply.
RequestFinished RequestTable::End(Entry& entry, RequestEnd end, absl::Status status) {
  RequestFinished finished;
  finished.sequence = entry.request.sequence;
  finished.end = end;
  finished.attempts = entry.attempts;
  if (entry.place == Place::kSent) finished.node = entry.node;
  if (absl::IsUnavailable(status) || absl::IsResourceExhausted(status)) finished.retry_after = RetryAfter();
  finished.status = std::move(status);
  switch (end) {
    case RequestEnd::kServed:
      ++counts_.served;
      break;
    case RequestEnd::kFailed:
      ++counts_.failed;
      break;
    case RequestEnd::kExpired:
      ++counts_.expired;
      break;
    case RequestEnd::kCancelled:
      ++counts_.cancelled;
      break;
  }
  switch (entry.place) {
    case Place::kQueued:
      Dequeue(entry);
      break;
    case Place::kPaused:
      pauses_.erase({entry.resume, finished.sequence});
      break;
    case Place::kSent:
      --sent_;
      break;
  }
  if (entry.place != Place::kSent) waiting_bytes_ -= entry.request.bytes;
  expiries_.erase({entry.expiry, finished.sequence});
  if (entry.request.call.call != 0) calls_.erase(entry.request.call);
  const auto function = functions_.find({entry.request.function, entry.request.version});
  function->second.erase(finished.sequence);
  if (function->second.empty()) functions_.erase(function);
  requests_.erase(finished.sequence);
  return finished;
}

// Gives back the credit. Null when no caller waits for this reply any more.
RequestTable::Entry* RequestTable::TakeReply(std::uint64_t ticket, std::string* node) {
  const auto it = sendings_.find(ticket);
  if (it == sendings_.end()) return nullptr;  // its node was lost, and what it held was sent anew
  const Sending sending = std::move(it->second);
  sendings_.erase(it);
  credits_.Return(sending.node);
  *node = sending.node;
  const auto request = requests_.find(sending.sequence);
  return request == requests_.end() ? nullptr : &request->second;
}

// Requests that are wrong in themselves say nothing about how the function is served.
void RequestTable::CountForSlo(const Entry& entry, const absl::Status& status, Time now) {
  if (absl::IsInvalidArgument(status) || absl::IsCancelled(status)) return;
  const bool in_time = status.ok() && now <= entry.deadline;
  if (slo_) slo_->Ended(entry.request.function, entry.request.percentile, in_time, now - entry.arrival);
  if (late_ && entry.deadline != Time::max())
    late_->Ended(entry.request.function, entry.request.percentile, in_time);
}

std::vector<RequestFinished> RequestTable::Served(std::uint64_t ticket, const absl::Status& status, Time now,
                                                  Duration run) {
  std::string node;
  Entry* entry = TakeReply(ticket, &node);
  if (entry == nullptr) return {};
  if (waiting() > 0)
    service_interval_.Observe(std::min<Duration>(now - last_served_, std::chrono::seconds(1)));
  last_served_ = now;
  RequestEnd end = RequestEnd::kFailed;
  if (status.ok()) {
    end = RequestEnd::kServed;
    credits_.SetResident(node, entry->request.model);
    if (late_ && run > Duration::zero()) costs_.ObserveRun(entry->request.model, run);
  }
  if (absl::IsDeadlineExceeded(status)) end = RequestEnd::kExpired;
  if (absl::IsCancelled(status)) end = RequestEnd::kCancelled;
  CountForSlo(*entry, status, now);
  return {End(*entry, end, status)};
}

bool RequestTable::RefusedByAll(const Entry& entry) const {
  const auto* holders = credits_.Holders(entry.request.model);
  if (holders == nullptr) return true;
  return std::all_of(holders->begin(), holders->end(),
                     [&](const std::string& node) { return entry.refused_by.contains(node); });
}

std::vector<RequestFinished> RequestTable::Bounced(std::uint64_t ticket, proto::BounceReason reason,
                                                   const std::string& message, Time now) {
  std::string node;
  Entry* entry = TakeReply(ticket, &node);
  ++counts_.bounced;
  // A model or inputs that are not there concern this request alone, and a lease may be over for this
  // function's state alone; all else concerns whatever would be sent there.
  const bool own = reason == proto::BOUNCE_NOT_ADOPTED || reason == proto::BOUNCE_NO_INPUTS ||
                   reason == proto::BOUNCE_LEASE_OVER;
  if (!own && !node.empty()) {
    credits_.Close(node, now + limits_.bounce_pause);
    reopenings_.insert(now + limits_.bounce_pause);
  }
  if (entry == nullptr) return {};
  --entry->attempts;  // no worker had it
  entry->last_refusal = absl::StrCat("node '", node, "': ", message);
  if (++entry->bounces > limits_.max_bounces) {
    return {End(*entry, RequestEnd::kFailed,
                absl::UnavailableError(absl::StrCat("function '", entry->request.function, "' was refused ",
                                                    entry->bounces, " times (", entry->last_refusal,
                                                    "); try again later")))};
  }
  --sent_;
  waiting_bytes_ += entry->request.bytes;
  entry->refused_by.insert(node);
  if (RefusedByAll(*entry)) {
    Pause(*entry, now + limits_.bounce_pause);
  } else {
    Enqueue(*entry);
  }
  return {};
}

// The node or the call to it is gone, and perhaps the request killed it: bounded.
void RequestTable::LoseAttempt(Entry& entry, const std::string& why, Finished& finished) {
  if (entry.attempts >= limits_.max_attempts) {
    finished.push_back(End(entry, RequestEnd::kFailed,
                           absl::UnavailableError(absl::StrCat(
                               "function '", entry.request.function, "' was tried on ", entry.attempts,
                               " nodes, and each was lost (the last: ", why, "); try again later"))));
    return;
  }
  --sent_;
  waiting_bytes_ += entry.request.bytes;
  Enqueue(entry);
}

std::vector<RequestFinished> RequestTable::CallFailed(std::uint64_t ticket, const std::string& why,
                                                      Time now) {
  std::string node;
  Entry* entry = TakeReply(ticket, &node);
  Finished finished;
  if (!node.empty()) {
    credits_.Close(node, now + limits_.bounce_pause);
    reopenings_.insert(now + limits_.bounce_pause);
  }
  if (entry != nullptr) LoseAttempt(*entry, why, finished);
  return finished;
}

void RequestTable::Apply(const proto::CreditGrant& grant) {
  const NodeCredit* known = credits_.Find(grant.node());
  if (known != nullptr && known->epoch > grant.node_epoch()) return;
  // Only models that come or go change the index.
  const std::vector<std::string> changed = credits_.ComeOrGo(grant);
  for (const std::string& model : changed) Unindex(model);
  credits_.Apply(grant);
  for (const std::string& model : changed) Index(model);
}

std::vector<RequestFinished> RequestTable::NodeLost(const std::string& node, const std::string& why) {
  Finished finished;
  credits_.Remove(node);
  eligible_.erase(node);
  std::vector<std::uint64_t> lost;
  std::erase_if(sendings_, [&](const auto& sending) {
    if (sending.second.node != node) return false;
    lost.push_back(sending.second.sequence);
    return true;
  });
  for (const std::uint64_t sequence : lost) {
    const auto it = requests_.find(sequence);
    if (it != requests_.end()) LoseAttempt(it->second, why, finished);
  }
  return finished;
}

std::vector<RequestFinished> RequestTable::FunctionGone(const std::string& function,
                                                        const std::string& version,
                                                        const absl::Status& status) {
  Finished finished;
  const auto it = functions_.find({function, version});
  if (it == functions_.end()) return finished;
  for (const std::uint64_t sequence : std::set<std::uint64_t>(it->second)) {
    Entry& entry = requests_.at(sequence);
    if (entry.place != Place::kSent) finished.push_back(End(entry, RequestEnd::kFailed, status));
  }
  return finished;
}

absl::Status RequestTable::TimeoutStatus(const Entry& entry, Time now) const {
  std::string where =
      entry.place == Place::kSent ? absl::StrCat("at node '", entry.node, "'") : "in the router's queue";
  if (entry.place != Place::kSent && credits_.Holders(entry.request.model) == nullptr) {
    where += ", since no node holds its model";
  } else if (!entry.last_refusal.empty()) {
    where += absl::StrCat("; last refusal: ", entry.last_refusal);
  }
  return absl::DeadlineExceededError(absl::StrCat("function '", entry.request.function,
                                                  "': the timeout passed after ",
                                                  FormatDuration(now - entry.arrival), " ", where));
}

std::vector<RequestFinished> RequestTable::Expire(Time now) {
  Finished finished;
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    Entry& entry = requests_.at(expiries_.begin()->second);
    CountForSlo(entry, absl::DeadlineExceededError(""), now);
    finished.push_back(End(entry, RequestEnd::kExpired, TimeoutStatus(entry, now)));
  }
  WakeDue(now);
  return finished;
}

std::vector<RequestFinished> RequestTable::CancelSequence(std::uint64_t sequence) {
  const auto it = requests_.find(sequence);
  if (it == requests_.end()) return {};
  return {End(it->second, RequestEnd::kCancelled, absl::CancelledError("the client went away"))};
}

std::vector<RequestFinished> RequestTable::Cancel(const CallId& call) {
  const auto it = calls_.find(call);
  return it == calls_.end() ? Finished() : CancelSequence(it->second);
}

}  // namespace troupe::cluster
