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
      pauses_.Remove(entry.resume, finished.sequence);
      break;
    case Place::kSent:
      --sent_;
      break;
  }
  if (entry.place != Place::kSent) waiting_bytes_ -= entry.request.bytes;
  requests_.Erase(entry);
  return finished;
}

std::optional<RequestTable::Reply> RequestTable::TakeReply(std::uint64_t ticket, Time now) {
  const auto sending = sendings_.Take(ticket);
  if (!sending) return std::nullopt;
  credits_.Return(sending->node);
  placement_.Returned(ticket, *sending, now);
  return Reply{*sending, requests_.Find(sending->sequence)};
}

std::vector<RequestFinished> RequestTable::Served(std::uint64_t ticket, const absl::Status& status, Time now,
                                                  Duration run) {
  const auto reply = TakeReply(ticket, now);
  if (!reply || reply->entry == nullptr) return {};
  Entry* const entry = reply->entry;
  pace_.Served(now, waiting() > 0);
  RequestEnd end = RequestEnd::kFailed;
  if (status.ok()) {
    end = RequestEnd::kServed;
    credits_.SetResident(reply->sending.node, entry->request.model);
    order_.ObserveRun(entry->request.model, run);
    if (run > Duration::zero()) placement_.Ran(reply->sending.node, entry->request.model, run);
  }
  if (absl::IsDeadlineExceeded(status)) end = RequestEnd::kExpired;
  if (absl::IsCancelled(status)) end = RequestEnd::kCancelled;
  order_.Ended(*entry, status, now);
  return {End(*entry, end, status)};
}

bool RequestTable::RefusedByAll(const Entry& entry, Time now) const {
  const auto* holders = credits_.Holders(entry.request.model);
  if (holders == nullptr) return true;
  return std::all_of(holders->begin(), holders->end(),
                     [&](const std::string& node) { return entry.RefusedBy(node, now); });
}

std::vector<RequestFinished> RequestTable::Bounced(std::uint64_t ticket, proto::BounceReason reason,
                                                   const std::string& message, Time now,
                                                   std::uint32_t attempts) {
  const auto reply = TakeReply(ticket, now);
  ++counts_.bounced;
  if (!reply) return {};
  // A model or inputs that are not there concern this request alone, and a lease may be over for this
  // function's state alone; the GPU that a request names concerns no other GPU of the node. All else concerns
  // whatever would be sent there.
  const bool gpu = reply->sending.gpu && reason == proto::BOUNCE_NO_GPU;
  const bool own = gpu || reason == proto::BOUNCE_NOT_ADOPTED || reason == proto::BOUNCE_NO_INPUTS ||
                   reason == proto::BOUNCE_LEASE_OVER;
  if (gpu) {
    placement_.GpuLost(reply->sending);
    // When the node next tells of changes, the GPU may have its worker again and be as it was told before.
    credits_.AskAnew(reply->sending.node);
  }
  if (!own) CloseNode(reply->sending.node, now);
  if (reply->entry == nullptr) return {};
  Entry& entry = *reply->entry;
  --entry.attempts;  // no worker had it
  entry.last_refusal = absl::StrCat("node '", reply->sending.node, "': ", message);
  // A node that does not have the model yet refuses for as long as it takes to come: that ends with the request's timeout.
  if (reason != proto::BOUNCE_NOT_ADOPTED && ++entry.bounces > limits_.max_bounces) {
    return {End(entry, RequestEnd::kFailed,
                absl::UnavailableError(absl::StrCat("function '", entry.request.function, "' was refused ",
                                                    entry.bounces, " times (", entry.last_refusal,
                                                    "); try again later")))};
  }
  if (gpu) {
    Finished finished;
    entry.attempts += std::min(attempts, limits_.max_attempts);
    LoseAttempt(entry, message, finished);
    return finished;
  }
  --sent_;
  waiting_bytes_ += entry.request.bytes;
  const Time again = now + limits_.bounce_pause;
  entry.refused_by[reply->sending.node] = again;
  if (RefusedByAll(entry, now)) {
    Pause(entry, again);
  } else {
    pauses_.AddRefusal(again);
    Enqueue(entry);
  }
  return {};
}

// The node or the call to it is gone, and perhaps the request killed it: bounded.
void RequestTable::LoseAttempt(Entry& entry, const std::string& why, Finished& finished) {
  if (entry.attempts >= limits_.max_attempts) {
    finished.push_back(End(entry, RequestEnd::kFailed,
                           absl::UnavailableError(absl::StrCat(
                               "function '", entry.request.function, "' was tried on ", entry.attempts,
                               " nodes or GPUs, and each was lost (the last: ", why, "); try again later"))));
    return;
  }
  --sent_;
  waiting_bytes_ += entry.request.bytes;
  Enqueue(entry);
}

std::vector<RequestFinished> RequestTable::CallFailed(std::uint64_t ticket, const std::string& why,
                                                      Time now) {
  const auto reply = TakeReply(ticket, now);
  Finished finished;
  if (!reply) return finished;
  CloseNode(reply->sending.node, now);
  if (reply->entry != nullptr) LoseAttempt(*reply->entry, why, finished);
  return finished;
}

std::vector<RequestFinished> RequestTable::NeverSent(std::uint64_t ticket, Time now) {
  (void)TakeReply(ticket, now);
  return {};
}

void RequestTable::Apply(const proto::CreditGrant& grant) {
  const NodeCredit* known = credits_.Find(grant.node());
  if (known != nullptr && known->epoch > grant.node_epoch()) return;
  // Only models that come or go change the index.
  const std::vector<std::string> changed = credits_.ComeOrGo(grant);
  for (const std::string& model : changed) placement_.Unindex(model);
  credits_.Apply(grant);
  for (const std::string& model : changed) placement_.Index(model);
  placement_.Told(grant);
}

std::vector<RequestFinished> RequestTable::NodeLost(const std::string& node, const std::string& why) {
  Finished finished;
  credits_.Remove(node);
  placement_.Forget(node);
  for (const std::uint64_t sequence : sendings_.TakeOf(node))
    if (auto* entry = requests_.Find(sequence)) LoseAttempt(*entry, why, finished);
  return finished;
}

std::vector<RequestFinished> RequestTable::FunctionGone(const std::string& function,
                                                        const std::string& version,
                                                        const absl::Status& status) {
  Finished finished;
  for (const std::uint64_t sequence : requests_.OfFunction(function, version)) {
    Entry& entry = requests_.At(sequence);
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
  while (requests_.NextExpiry() <= now && requests_.size() > 0) {
    Entry& entry = *requests_.FirstToExpire();
    order_.Ended(entry, absl::DeadlineExceededError(""), now);
    finished.push_back(End(entry, RequestEnd::kExpired, TimeoutStatus(entry, now)));
  }
  WakeDue(now);
  return finished;
}

std::vector<RequestFinished> RequestTable::CancelSequence(std::uint64_t sequence) {
  auto* entry = requests_.Find(sequence);
  if (entry == nullptr) return {};
  return {End(*entry, RequestEnd::kCancelled, absl::CancelledError("the client went away"))};
}

std::vector<RequestFinished> RequestTable::Cancel(const CallId& call) {
  const auto* entry = requests_.Find(call);
  return entry == nullptr ? Finished() : CancelSequence(entry->request.sequence);
}

}  // namespace troupe::cluster
