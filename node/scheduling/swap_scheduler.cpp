// The requests' half of the swap scheduler's book-keeping: how they come in and how they end.
#include "node/scheduling/swap_scheduler.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::node {

absl::StatusOr<SchedulerPolicies> FindSchedulerPolicies(const PolicyNames& names) {
  auto ordering = FindOrderingPolicy(names.ordering);
  if (!ordering.ok()) return ordering.status();
  auto gpu = FindGpuPolicy(names.gpu);
  if (!gpu.ok()) return gpu.status();
  auto eviction = FindEvictionPolicy(names.eviction);
  if (!eviction.ok()) return eviction.status();
  auto copies = FindCopiesPolicy(names.copies);
  if (!copies.ok()) return copies.status();
  auto binding = FindBindingPolicy(names.binding);
  if (!binding.ok()) return binding.status();
  if (*binding != BindingRule::kLate && !gpu->early_binding)
    return absl::InvalidArgumentError(absl::StrCat("the binding '", names.binding,
                                                   "' was given the gpu policy '", names.gpu,
                                                   "', which uses any GPU; choose the gpu policy 'bound'"));
  return SchedulerPolicies{
      .ordering = *ordering, .gpu = *gpu, .eviction = *eviction, .copies = *copies, .binding = *binding};
}

SwapScheduler::SwapScheduler(SchedulerLimits limits, SchedulerPolicies policies, CostDefaults costs,
                             Topology topology)
    : tables_(limits, policies, costs, std::move(topology)), random_(limits.seed) {
  if (policies.ordering.slo != nullptr) slo_.emplace(*policies.ordering.slo);
  if (tables_.by_gpu) locality_ = MakeLocalityQueue(*policies.gpu.locality);
}

void SwapScheduler::AddRuntime(GpuIndex gpu, Bytes memory, std::uint32_t device) {
  tables_.AddRuntime(gpu, memory, device);
  parked_.resize(tables_.pipelines.size());
  dispatched_to_.resize(tables_.pipelines.size());
}

Consequences SwapScheduler::DescribeModel(const std::string& name, Bytes weights, Bytes activation) {
  const ModelId id = Intern(name);
  // A device that holds the model knows better than an estimate.
  for (const GpuIndex gpu : tables_.gpus.Holders(id))
    weights = std::max(weights, tables_.gpus.at(gpu).Find(id)->bytes);
  Model& described = tables_.models[id];
  const bool is_new = !std::exchange(described.adopted, true);
  described.weights = weights;
  described.activation = activation;
  Consequences effects;
  EndUnplaceable(effects);
  if (is_new) copies_.NoteAdopted(id);
  ForgetNames();
  return effects;
}

absl::Status SwapScheduler::CannotFit(const std::string& function, const Model& model) const {
  return absl::FailedPreconditionError(
      absl::StrCat("function '", function, "' needs ", FormatBytes(model.weights + model.activation),
                   " of GPU memory (weights ", FormatBytes(model.weights),
                   "), and the largest GPU of this node has ", FormatBytes(tables_.gpus.LargestMemory()),
                   " with nothing else on it; give the node a larger GPU or deploy a smaller model"));
}

// The answer to a request that may not enter; kServed stands for 'it may'.
Finished SwapScheduler::Refuse(const NodeRequest& request, Time now) const {
  const ModelId id = tables_.Find(request.model);
  const Model* model = tables_.Adopted(id);
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
  if (tables_.gpus.AllUnfit()) return bounce(proto::BOUNCE_NO_GPU, "no GPU of this node is fit");
  if (model == nullptr) {
    return bounce(proto::BOUNCE_NOT_ADOPTED,
                  absl::StrCat("function '", request.function, "' is not on this node"));
  }
  if (!request.state.empty() && tables_.states.Find(request.state) == nullptr) {
    return bounce(proto::BOUNCE_NOT_ADOPTED,
                  absl::StrCat("function '", request.function, "' has state, which is not on this node"));
  }
  if (tables_.queue.size() >= tables_.limits.max_waiting) {
    return bounce(proto::BOUNCE_NO_CREDIT,
                  absl::StrCat(tables_.queue.size(), " requests wait at this node already"));
  }
  if (!tables_.CanEverFit(id)) {
    return {.id = request.id, .kind = FinishKind::kFailed, .status = CannotFit(request.function, *model)};
  }
  if (request.expiry <= now) {
    return {
        .id = request.id,
        .kind = FinishKind::kExpired,
        .status = absl::DeadlineExceededError("the timeout had passed when the request reached the node")};
  }
  return {};
}

Submitted SwapScheduler::Submit(const NodeRequest& request, Time now) {
  Finished refused = Refuse(request, now);
  if (refused.kind != FinishKind::kServed) return {.accepted = false, .finished = std::move(refused)};
  const ModelId id = tables_.Find(request.model);
  Model& model = tables_.models[id];
  Submitted submitted;
  if (!tables_.binding.late() && !KeepRoom(id, now, submitted.evictions)) {
    submitted.accepted = false;
    submitted.finished = {
        .id = request.id, .kind = FinishKind::kFailed, .status = NoRoomKept(request.function, model)};
    return submitted;
  }
  Entry& entry = requests_[request.id];
  entry.request = request;
  entry.model = id;
  entry.function = EnterFunction(request.function);
  ++model.requests;
  entry.arrival = now;
  entry.key = MakeOrderingKey(tables_.policies.ordering,
                              {.priority = request.priority, .arrival = now, .deadline = request.deadline},
                              next_sequence_++, slo_ ? slo_->PlaceOf(request.function) : FunctionPlace{});
  if (tables_.late) entry.latest = LatestBegin(request.deadline, tables_.costs.RunTime(model.cost), now);
  if (tables_.late && request.deadline != Time::max() && tables_.late->Yields(request.function))
    entry.key = LateKey(entry.key);
  entry.asked_before = std::exchange(model.asked, now);
  if (entry.asked_before != Time::min()) model.gap.Observe(now - entry.asked_before);
  if (request.deadline != Time::max()) model.patience.Observe(request.deadline - now);
  if (!request.trial) copies_.NoteAsked(id, now);
  Enqueue(entry);
  tables_.states.Enter(request.state, request.id);
  if (request.expiry != Time::max()) expiries_.emplace(request.expiry, request.id);
  ++(request.trial ? trials_ : counts_.accepted);
  return submitted;
}

void SwapScheduler::Count(FinishKind kind) {
  switch (kind) {
    case FinishKind::kServed:
      ++counts_.served;
      break;
    case FinishKind::kFailed:
      ++counts_.failed;
      break;
    case FinishKind::kExpired:
      ++counts_.expired;
      break;
    case FinishKind::kCancelled:
      ++counts_.cancelled;
      break;
    case FinishKind::kBounced:
      ++counts_.bounced;
      break;
  }
}

// Takes the request out of every table. It is in nobody's pipeline any more.
Finished SwapScheduler::End(Entry& entry, FinishKind kind, absl::Status status, proto::BounceReason bounce) {
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
  if (entry.gpu == kNoGpu) Dequeue(entry);
  tables_.suspects -= entry.suspect ? 1 : 0;
  tables_.states.Leave(entry.request.state, entry.request.id);
  Release(entry);
  LeaveNode(entry);
  expiries_.erase({entry.request.expiry, entry.request.id});
  requests_.erase(finished.id);
  return finished;
}

Cancelled SwapScheduler::Cancel(const RequestId& id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return {};
  Entry& entry = it->second;
  if (entry.gpu == kNoGpu) {
    return {
        .verdict = CancelVerdict::kCancelled,
        .finished = End(entry, FinishKind::kCancelled, absl::CancelledError("cancelled while it waited"))};
  }
  entry.cancelled = true;
  return {.verdict = CancelVerdict::kInFlight, .finished = {}, .gpu = entry.gpu};
}

Consequences SwapScheduler::ForgetRouter(std::uint64_t router) {
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
  ForgetNames();
  return effects;
}

void SwapScheduler::SetInRegion(const std::string& name, bool in_region) {
  const ModelId id = tables_.Find(name);
  Model* const model = tables_.Adopted(id);
  if (model == nullptr || model->in_region == in_region) return;
  model->in_region = in_region;
  in_region ? --out_of_region_ : ++out_of_region_;
  if (tables_.queue.Find(id) != nullptr) tables_.queue.LookAway(id);
  Activate(id);
  if (in_region) return;
  // A GPU is kept for no request that cannot take it.
  for (Entry* const holder : tables_.held.HoldersOf(id)) Release(*holder);
}

std::vector<std::string> SwapScheduler::WaitingForRegion() const {
  std::vector<std::string> models;
  if (out_of_region_ == 0) return models;
  for (const ModelId id : tables_.queue.InOrder()) {
    if (!tables_.models[id].in_region) models.push_back(tables_.NameOf(id));
  }
  return models;
}

Consequences SwapScheduler::ForgetModel(const std::string& name) {
  Consequences effects;
  const ModelId id = tables_.Find(name);
  if (id == kNoName) return effects;
  std::vector<Entry*> waiting;
  if (const auto* requests = tables_.queue.Find(id)) {
    for (const auto& [key, entry] : *requests) waiting.push_back(entry);
  }
  for (Entry* const entry : waiting) {
    effects.finished.push_back(End(*entry, FinishKind::kBounced,
                                   absl::UnavailableError("the model was taken off this node"),
                                   proto::BOUNCE_NOT_ADOPTED));
  }
  SetInRegion(name, true);
  Model& model = tables_.models[id];
  if (model.adopted) passing_.push_back(id);
  model = {.cost = model.cost, .requests = model.requests, .key = std::move(model.key)};
  tables_.homes.erase(id);
  tables_.binding.Forget(id);
  std::erase_if(tables_.hints, [&](const auto& hint) { return hint.first.second == id; });
  const std::vector<GpuIndex> holders = tables_.gpus.Holders(id);
  for (const GpuIndex gpu : holders) {
    if (!tables_.gpus.at(gpu).Find(id)->Idle()) continue;
    Evict(gpu, id);
    effects.evictions.push_back({gpu, name});
  }
  ForgetNames();
  return effects;
}

Time SwapScheduler::NextDue() const {
  return std::min(look_again_, expiries_.empty() ? Time::max() : expiries_.begin()->first);
}

Consequences SwapScheduler::Expire(Time now) {
  Consequences effects;
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    Entry& entry = requests_.at(expiries_.begin()->second);
    if (entry.gpu == kNoGpu) {
      entry.queued = now - entry.arrival;
      CountForSlo(entry, absl::DeadlineExceededError(""), now);
      const auto status = absl::DeadlineExceededError(
          absl::StrCat("function '", entry.request.function, "': the timeout passed after ",
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

void SwapScheduler::Check() const {
  tables_.gpus.Check();
  std::size_t dispatched = 0;
  for (const auto& [gpu, there] : tables_.gpus.gpus()) {
    const std::vector<Entry*>& pipeline = tables_.pipelines[gpu];
    TROUPE_CHECK(pipeline.size() == there.in_flight, "pipeline and GPU table disagree");
    TROUPE_CHECK(tables_.gpus.InFlightOn(there.device) <= tables_.places.most,
                 "a pipeline is deeper than its limit");
    for (const Entry* entry : pipeline) {
      TROUPE_CHECK(entry->gpu == gpu, "a request is in another GPU's pipeline");
      TROUPE_CHECK(!tables_.models[entry->model].adopted || tables_.Serves(*entry, there),
                   "a request runs on a runtime of somebody else");
    }
    dispatched += pipeline.size();
  }
  TROUPE_CHECK(dispatched + tables_.queue.size() == requests_.size(),
               "a request is neither waiting nor dispatched");
  TROUPE_CHECK(counts_.accepted == counts_.served + counts_.failed + counts_.expired + counts_.cancelled +
                                       counts_.bounced + requests_.size() - trials_,
               "requests were lost or ended twice");
  CheckStates();
  CheckHeads();
  CheckNames();
  tables_.held.Check();
}

}  // namespace troupe::node
