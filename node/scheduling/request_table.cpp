#include "node/scheduling/request_table.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "node/scheduling/scheduler_parts.hpp"

namespace troupe::node {

absl::Status RequestTable::CannotFit(const std::string& function, const ModelEntry& model) const {
  return absl::FailedPreconditionError(absl::StrCat(
      "function '", function, "' needs ", FormatBytes(model.weights + model.activation),
      " of GPU memory (weights ", FormatBytes(model.weights), "), and the largest GPU of this node has ",
      FormatBytes(LargestMemory(tables_.gpus.gpus())),
      " with nothing else on it; give the node a larger GPU or deploy a smaller model"));
}

// The answer to a request that may not enter; kServed stands for 'it may'.
Finished RequestTable::Refuse(const NodeRequest& request, Time now) const {
  const ModelId id = tables_.models.Find(request.model);
  const ModelEntry* model = tables_.models.Adopted(id);
  const auto bounce = [&](proto::BounceReason reason, const std::string& message) {
    return Finished{.id = request.id,
                    .kind = FinishKind::kBounced,
                    .status = absl::UnavailableError(message),
                    .bounce = reason};
  };
  if (requests_.contains(request.id)) {
    return {.id = request.id,
            .kind = FinishKind::kFailed,
            .status =
                absl::InvalidArgumentError("a request with this identity is here already; number them anew")};
  }
  if (tables_.draining) return bounce(proto::BOUNCE_DRAINING, "this node is draining");
  if (AllUnfit(tables_.gpus.gpus())) return bounce(proto::BOUNCE_NO_GPU, "no GPU of this node is fit");
  if (model == nullptr) {
    return bounce(proto::BOUNCE_NOT_ADOPTED,
                  absl::StrCat("function '", request.function.text(), "' is not on this node"));
  }
  if (request.state && tables_.states.Find(request.state) == nullptr) {
    return bounce(proto::BOUNCE_NOT_ADOPTED, absl::StrCat("function '", request.function.text(),
                                                          "' has state, which is not on this node"));
  }
  if (tables_.requests.queue.size() >= tables_.rules.limits.max_waiting) {
    return bounce(proto::BOUNCE_NO_CREDIT,
                  absl::StrCat(tables_.requests.queue.size(), " requests wait at this node already"));
  }
  if (!tables_.CanEverFit(id)) {
    return {
        .id = request.id, .kind = FinishKind::kFailed, .status = CannotFit(request.function.text(), *model)};
  }
  if (const absl::Status named = parts_.named.Refuse(request, id); !named.ok()) {
    if (absl::IsUnavailable(named)) return bounce(proto::BOUNCE_NO_GPU, std::string(named.message()));
    return {.id = request.id, .kind = FinishKind::kFailed, .status = named};
  }
  if (request.expiry <= now) {
    return {
        .id = request.id,
        .kind = FinishKind::kExpired,
        .status = absl::DeadlineExceededError("the timeout had passed when the request reached the node")};
  }
  return {};
}

Submitted RequestTable::Submit(const NodeRequest& request, Time now) {
  Finished refused = Refuse(request, now);
  if (refused.kind != FinishKind::kServed) return {.accepted = false, .finished = std::move(refused)};
  const ModelId id = tables_.models.Find(request.model);
  ModelEntry& model = tables_.models[id];
  Submitted submitted;
  if (!tables_.homes.binding.late() && !parts_.homes.KeepRoom(id, now, submitted.evictions)) {
    submitted.accepted = false;
    submitted.finished = {.id = request.id,
                          .kind = FinishKind::kFailed,
                          .status = parts_.homes.NoRoomKept(request.function.text(), model)};
    return submitted;
  }
  RequestEntry& entry = requests_[request.id];
  entry.request = request;
  entry.model = id;
  EnterFunction(request.function);
  ++model.requests;
  entry.arrival = now;
  entry.key =
      MakeOrderingKey(tables_.rules.policies.ordering,
                      {.priority = request.priority, .arrival = now, .deadline = request.deadline},
                      next_sequence_++, parts_.slo ? parts_.slo->PlaceOf(request.function) : FunctionPlace{});
  if (tables_.requests.late)
    entry.latest = LatestBegin(request.deadline, tables_.times.RunTimeOf(entry), now);
  if (tables_.requests.late && request.deadline != Time::max() &&
      tables_.requests.late->Yields(request.function))
    entry.key = LateKey(entry.key);
  entry.asked_before = std::exchange(model.asked, now);
  if (entry.asked_before != Time::min()) model.gap.Observe(now - entry.asked_before);
  if (request.deadline != Time::max()) model.patience.Observe(request.deadline - now);
  if (!request.trial) parts_.prefetcher.NoteAsked(id, now);
  parts_.waiting.Enqueue(entry);
  tables_.states.Enter(request.state, request.id);
  if (request.expiry != Time::max()) expiries_.emplace(request.expiry, request.id);
  ++(request.trial ? trials_ : parts_.counts.accepted);
  return submitted;
}

void RequestTable::EnterFunction(const FunctionNumber& function) {
  if (serving_.size() <= function.value()) serving_.resize(function.value() + 1);
  ++serving_[function.value()].requests;
}

void RequestTable::Count(FinishKind kind) {
  switch (kind) {
    case FinishKind::kServed:
      ++parts_.counts.served;
      break;
    case FinishKind::kFailed:
      ++parts_.counts.failed;
      break;
    case FinishKind::kExpired:
      ++parts_.counts.expired;
      break;
    case FinishKind::kCancelled:
      ++parts_.counts.cancelled;
      break;
    case FinishKind::kBounced:
      ++parts_.counts.bounced;
      break;
  }
}

Finished RequestTable::End(RequestEntry& entry, FinishKind kind, absl::Status status,
                           proto::BounceReason bounce) {
  Finished finished{.id = entry.request.id,
                    .kind = kind,
                    .status = std::move(status),
                    .bounce = bounce,
                    .attempts = entry.attempts,
                    .gpu = entry.gpu,
                    .hit = entry.hit,
                    .queued = entry.queued};
  if (entry.request.trial) {
    --trials_;
  } else {
    Count(kind);
  }
  if (entry.gpu == kNoGpu) parts_.waiting.Dequeue(entry);
  tables_.requests.suspects -= entry.suspect ? 1 : 0;
  tables_.states.Leave(entry.request.state, entry.request.id);
  parts_.holds.Release(entry);
  LeaveNode(entry);
  expiries_.erase({entry.request.expiry, entry.request.id});
  requests_.erase(finished.id);
  return finished;
}

// A function is known as long as it has requests here.
void RequestTable::LeaveNode(const RequestEntry& entry) {
  --tables_.models[entry.model].requests;
  FunctionEntry& function = FunctionOf(entry);
  if (--function.requests == 0) function = {};
}

void RequestTable::LeaveFunction(const RequestEntry& entry) {
  --FunctionOf(entry).dispatched;
}

bool RequestTable::MustTakeTurns(const RequestEntry& entry) const {
  return parts_.slo && parts_.slo->rules().one_at_a_time &&
         serving_[entry.request.function.value()].dispatched > 0;
}

void RequestTable::Reorder(Time now) {
  if (!parts_.slo || !parts_.slo->Reorder(now)) return;
  for (auto& [id, entry] : requests_) {
    const FunctionPlace place = parts_.slo->PlaceOf(entry.request.function);
    if (entry.gpu == kNoGpu && place != entry.key.place) {
      parts_.waiting.Dequeue(entry);
      entry.key.place = place;
      parts_.waiting.Enqueue(entry);
    }
    entry.key.place = place;
  }
}

Cancelled RequestTable::Cancel(const RequestId& id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return {};
  RequestEntry& entry = it->second;
  if (entry.gpu == kNoGpu) {
    return {
        .verdict = CancelVerdict::kCancelled,
        .finished = End(entry, FinishKind::kCancelled, absl::CancelledError("cancelled while it waited"))};
  }
  entry.cancelled = true;
  return {.verdict = CancelVerdict::kInFlight, .finished = {}, .gpu = entry.gpu};
}

Consequences RequestTable::ForgetRouter(std::uint64_t router) {
  std::vector<RequestId> ids;
  for (const auto& [id, entry] : requests_)
    if (id.router == router) ids.push_back(id);
  std::ranges::sort(ids);
  Consequences effects;
  for (const RequestId& id : ids) {
    Cancelled cancelled = Cancel(id);
    if (cancelled.verdict == CancelVerdict::kCancelled)
      effects.finished.push_back(std::move(cancelled.finished));
    if (cancelled.verdict == CancelVerdict::kInFlight) effects.cancel.push_back({id, cancelled.gpu});
  }
  parts_.names.ForgetUnused();
  return effects;
}

Consequences RequestTable::Expire(Time now) {
  Consequences effects;
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    RequestEntry& entry = requests_.at(expiries_.begin()->second);
    if (entry.gpu == kNoGpu) {
      entry.queued = now - entry.arrival;
      CountForSlo(entry, absl::DeadlineExceededError(""), now);
      const auto status = absl::DeadlineExceededError(
          absl::StrCat("function '", entry.request.function.text(), "': the timeout passed after ",
                       FormatDuration(entry.queued), " in the queue of the node"));
      effects.finished.push_back(End(entry, FinishKind::kExpired, status));
    } else {
      expiries_.erase(expiries_.begin());
      entry.expired = true;
      effects.cancel.push_back({entry.request.id, entry.gpu});
    }
  }
  return effects;
}

bool RequestTable::EndAbandoned(RequestEntry& entry, Consequences& effects) {
  if (entry.cancelled) {
    effects.finished.push_back(
        End(entry, FinishKind::kCancelled, absl::CancelledError("cancelled while it was on a GPU")));
  } else if (entry.expired) {
    effects.finished.push_back(End(entry, FinishKind::kExpired,
                                   absl::DeadlineExceededError("the timeout passed while it was on a GPU")));
  } else {
    return false;
  }
  return true;
}

void RequestTable::CountForSlo(const RequestEntry& entry, const absl::Status& status, Time now) {
  if (entry.request.trial || absl::IsInvalidArgument(status) || absl::IsCancelled(status)) return;
  const bool in_time = status.ok() && now <= entry.request.deadline;
  if (parts_.slo)
    parts_.slo->Ended(entry.request.function, entry.request.percentile, in_time, now - entry.arrival);
  if (tables_.requests.late && entry.request.deadline != Time::max())
    tables_.requests.late->Ended(entry.request.function, entry.request.percentile, in_time);
}

void RequestTable::Requeue(RequestEntry& entry, Consequences& effects) {
  const ModelEntry* const known = tables_.models.Adopted(entry.model);
  const bool fits = known != nullptr && tables_.CanEverFit(entry.model);
  if (known == nullptr) {
    effects.finished.push_back(End(entry, FinishKind::kBounced,
                                   absl::UnavailableError("the model was taken off this node"),
                                   proto::BOUNCE_NOT_ADOPTED));
  } else if (entry.request.state && tables_.states.Find(entry.request.state) == nullptr) {
    effects.finished.push_back(End(entry, FinishKind::kBounced,
                                   absl::UnavailableError("the function's state was taken off this node"),
                                   proto::BOUNCE_NOT_ADOPTED));
  } else if (AllUnfit(tables_.gpus.gpus())) {
    effects.finished.push_back(End(entry, FinishKind::kBounced,
                                   absl::UnavailableError("no GPU of this node is fit"),
                                   proto::BOUNCE_NO_GPU));
  } else if (!fits) {
    effects.finished.push_back(
        End(entry, FinishKind::kFailed, CannotFit(entry.request.function.text(), *known)));
  } else if (const absl::Status named = parts_.named.Refuse(entry.request, entry.model); !named.ok()) {
    effects.finished.push_back(End(entry, FinishKind::kBounced, named, proto::BOUNCE_NO_GPU));
  } else {
    entry.gpu = kNoGpu;
    if (parts_.slo) entry.key.place = parts_.slo->PlaceOf(entry.request.function);
    parts_.waiting.Enqueue(entry);
  }
}

void RequestTable::EndUnplaceable(Consequences& effects) {
  const auto fits = [&](ModelId model) { return tables_.CanEverFit(model); };
  if (std::ranges::all_of(tables_.requests.queue.waiting(), fits)) return;
  std::vector<RequestEntry*> ending;
  for (const ModelId model : tables_.requests.queue.InOrder()) {
    if (fits(model)) continue;
    for (const auto& [key, entry] : *tables_.requests.queue.Find(model)) ending.push_back(entry);
  }
  for (RequestEntry* const entry : ending) {
    if (AllUnfit(tables_.gpus.gpus())) {
      effects.finished.push_back(End(*entry, FinishKind::kBounced,
                                     absl::UnavailableError("no GPU of this node is fit"),
                                     proto::BOUNCE_NO_GPU));
    } else {
      effects.finished.push_back(
          End(*entry, FinishKind::kFailed,
              CannotFit(entry->request.function.text(), tables_.models[entry->model])));
    }
  }
}

void RequestTable::Check() const {
  std::size_t on_gpus = 0;
  for (const auto& [gpu, there] : tables_.gpus.gpus()) on_gpus += tables_.requests.pipelines[gpu].size();
  TROUPE_CHECK(on_gpus + tables_.requests.queue.size() == requests_.size(),
               "a request is neither waiting nor dispatched");
  const SchedulerCounts& counts = parts_.counts;
  TROUPE_CHECK(counts.accepted == counts.served + counts.failed + counts.expired + counts.cancelled +
                                      counts.bounced + requests_.size() - trials_,
               "requests were lost or ended twice");
  std::vector<std::uint32_t> of_model(tables_.models.size());
  std::vector<std::uint32_t> of_function(serving_.size()), dispatched(serving_.size());
  for (const auto& [id, entry] : requests_) {
    TROUPE_CHECK(tables_.models.NameOf(entry.model) == entry.request.model,
                 "a request has another model's number");
    ++of_model[entry.model];
    ++of_function[entry.request.function.value()];
    dispatched[entry.request.function.value()] += entry.gpu == kNoGpu ? 0 : 1;
  }
  for (ModelId id = 0; id < tables_.models.size(); ++id) {
    TROUPE_CHECK(tables_.models[id].requests == of_model[id], "the requests of a model are counted wrong");
  }
  for (std::size_t id = 0; id < serving_.size(); ++id) {
    TROUPE_CHECK(serving_[id].requests == of_function[id], "the requests of a function are counted wrong");
    TROUPE_CHECK(serving_[id].dispatched == dispatched[id], "functions run that were not dispatched");
  }
}

}  // namespace troupe::node
