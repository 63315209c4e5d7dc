// The requests' half of the swap scheduler's book-keeping: how they come in and how they end.
#include "node/swap_scheduler.hpp"

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
    : limits_(limits),
      policies_(policies),
      costs_(costs),
      binding_(policies.binding),
      topology_(std::move(topology)),
      random_(limits.seed) {
  if (policies_.ordering.slo != nullptr) slo_.emplace(*policies_.ordering.slo);
  if (policies_.ordering.late != nullptr) late_.emplace(*policies_.ordering.late);
  if (policies_.gpu.queues == GpuQueues::kNone) limits_.swap_ahead = 1;
  // Runtimes that serve one key each are decided request by request.
  if (policies_.gpu.locality && !limits_.isolated) locality_ = MakeLocalityQueue(*policies_.gpu.locality);
  if (locality_) limits_.swap_ahead = kLocalQueue;
  const bool for_hits = policies_.gpu.places_for_hits && !limits_.isolated && !limits_.LoadsOccupy();
  places_.depth = limits_.PipelineDepth();
  places_.most = for_hits ? 2 * places_.depth : places_.depth;
  TROUPE_CHECK(
      policies_.ordering.rank != nullptr && policies_.gpu.choose != nullptr && policies_.eviction != nullptr,
      "every slot of the scheduler needs a policy");
  TROUPE_CHECK(limits_.concurrency > 0 && limits_.swap_ahead > 0 && limits_.max_attempts > 0,
               "a limit of zero serves nothing");
}

void SwapScheduler::AddRuntime(GpuIndex gpu, Bytes memory, std::uint32_t device) {
  gpus_.Add(gpu, memory, device, !limits_.isolated);
  links_ = LinkCount();
  const std::size_t gpus = std::max<std::size_t>(pipelines_.size(), std::size_t{gpu} + 1);
  pipelines_.resize(gpus);
  parked_.resize(gpus);
  holds_.resize(gpus);
  dispatched_to_.resize(gpus);
  held_.resize(std::max<std::size_t>(held_.size(), std::size_t{device} + 1));
}

Effects SwapScheduler::DescribeModel(const std::string& name, Bytes weights, Bytes activation) {
  const ModelId id = Intern(name);
  // A device that holds the model knows better than an estimate.
  for (const GpuIndex gpu : gpus_.Holders(id)) weights = std::max(weights, gpus_.at(gpu).Find(id)->bytes);
  Model& described = models_[id];
  const bool is_new = !std::exchange(described.adopted, true);
  described.weights = weights;
  described.activation = activation;
  Effects effects;
  EndUnplaceable(effects);
  if (is_new && MayBringAhead()) newcomers_.push_back(id);
  ForgetNames();
  return effects;
}

// As long as it has been here: what its loads took; else by its size.
Duration SwapScheduler::LoadTimeOf(const Model& model) const {
  return model.load.Or(costs_.LoadTime(model.weights));
}

// What the requests behind the first one of this model take of the GPUs that have it.
Duration SwapScheduler::QueuedFor(ModelId model) const {
  const std::size_t waiting = WaitingFor(model);
  if (waiting < 2) return {};
  const auto holders = std::max<std::uint32_t>(gpus_.HolderCount(model), 1);
  return costs_.RunTime(models_[model].cost) * static_cast<Duration::rep>(waiting - 1) / holders;
}

absl::Status SwapScheduler::CannotFit(const std::string& function, const Model& model) const {
  return absl::FailedPreconditionError(
      absl::StrCat("function '", function, "' needs ", FormatBytes(model.weights + model.activation),
                   " of GPU memory (weights ", FormatBytes(model.weights),
                   "), and the largest GPU of this node has ", FormatBytes(gpus_.LargestMemory()),
                   " with nothing else on it; give the node a larger GPU or deploy a smaller model"));
}

// The answer to a request that may not enter; kServed stands for 'it may'.
Finished SwapScheduler::Refuse(const NodeRequest& request, Time now) const {
  const ModelId id = Find(request.model);
  const Model* model = Adopted(id);
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
  if (draining_) return bounce(proto::BOUNCE_DRAINING, "this node is draining");
  if (gpus_.AllUnfit()) return bounce(proto::BOUNCE_NO_GPU, "no GPU of this node is fit");
  if (model == nullptr) {
    return bounce(proto::BOUNCE_NOT_ADOPTED,
                  absl::StrCat("function '", request.function, "' is not on this node"));
  }
  if (!request.state.empty() && states_.Find(request.state) == nullptr) {
    return bounce(proto::BOUNCE_NOT_ADOPTED,
                  absl::StrCat("function '", request.function, "' has state, which is not on this node"));
  }
  if (queue_.size() >= limits_.max_waiting) {
    return bounce(proto::BOUNCE_NO_CREDIT,
                  absl::StrCat(queue_.size(), " requests wait at this node already"));
  }
  if (!CanEverFit(id)) {
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
  const ModelId id = Find(request.model);
  Model& model = models_[id];
  Submitted submitted;
  if (!binding_.late() && !KeepRoom(id, now, submitted.evictions)) {
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
  entry.key = MakeOrderingKey(policies_.ordering,
                              {.priority = request.priority, .arrival = now, .deadline = request.deadline},
                              next_sequence_++, slo_ ? slo_->PlaceOf(request.function) : FunctionPlace{});
  if (late_) entry.latest = LatestBegin(request.deadline, costs_.RunTime(model.cost), now);
  if (late_ && request.deadline != Time::max() && late_->Yields(request.function))
    entry.key = LateKey(entry.key);
  entry.asked_before = std::exchange(model.asked, now);
  if (entry.asked_before != Time::min()) model.gap.Observe(now - entry.asked_before);
  if (request.deadline != Time::max()) model.patience.Observe(request.deadline - now);
  if (!request.trial) NoteAsked(id, now);
  Enqueue(entry);
  states_.Enter(request.state, request.id);
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
  suspects_ -= entry.suspect ? 1 : 0;
  states_.Leave(entry.request.state, entry.request.id);
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

Effects SwapScheduler::ForgetRouter(std::uint64_t router) {
  std::vector<RequestId> ids;
  for (const auto& [id, entry] : requests_)
    if (id.router == router) ids.push_back(id);
  std::ranges::sort(ids);
  Effects effects;
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
  const ModelId id = Find(name);
  Model* const model = Adopted(id);
  if (model == nullptr || model->in_region == in_region) return;
  model->in_region = in_region;
  in_region ? --out_of_region_ : ++out_of_region_;
  if (queue_.Find(id) != nullptr) queue_.LookAway(id);
  Activate(id);
  if (in_region) return;
  // A GPU is kept for no request that cannot take it.
  for (GpuIndex gpu = 0; gpu < holds_.size(); ++gpu) {
    if (holds_[gpu] != nullptr && holds_[gpu]->model == id) Release(*holds_[gpu]);
  }
}

std::vector<std::string> SwapScheduler::WaitingForRegion() const {
  std::vector<std::string> models;
  if (out_of_region_ == 0) return models;
  for (const ModelId id : queue_.InOrder()) {
    if (!models_[id].in_region) models.push_back(NameOf(id));
  }
  return models;
}

Effects SwapScheduler::ForgetModel(const std::string& name) {
  Effects effects;
  const ModelId id = Find(name);
  if (id == kNoName) return effects;
  std::vector<Entry*> waiting;
  if (const auto* requests = queue_.Find(id)) {
    for (const auto& [key, entry] : *requests) waiting.push_back(entry);
  }
  for (Entry* const entry : waiting) {
    effects.finished.push_back(End(*entry, FinishKind::kBounced,
                                   absl::UnavailableError("the model was taken off this node"),
                                   proto::BOUNCE_NOT_ADOPTED));
  }
  SetInRegion(name, true);
  Model& model = models_[id];
  if (model.adopted) passing_.push_back(id);
  model = {.cost = model.cost, .requests = model.requests, .key = std::move(model.key)};
  homes_.erase(id);
  binding_.Forget(id);
  std::erase_if(hints_, [&](const auto& hint) { return hint.first.second == id; });
  const std::vector<GpuIndex> holders = gpus_.Holders(id);
  for (const GpuIndex gpu : holders) {
    if (!gpus_.at(gpu).Find(id)->Idle()) continue;
    Evict(gpu, id);
    effects.evictions.push_back({gpu, name});
  }
  ForgetNames();
  return effects;
}

Time SwapScheduler::NextDue() const {
  return std::min(look_again_, expiries_.empty() ? Time::max() : expiries_.begin()->first);
}

Effects SwapScheduler::Expire(Time now) {
  Effects effects;
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
  gpus_.Check();
  std::size_t dispatched = 0;
  for (const auto& [gpu, there] : gpus_.gpus()) {
    const std::vector<Entry*>& pipeline = pipelines_[gpu];
    TROUPE_CHECK(pipeline.size() == there.in_flight, "pipeline and GPU table disagree");
    TROUPE_CHECK(gpus_.InFlightOn(there.device) <= places_.most, "a pipeline is deeper than its limit");
    for (const Entry* entry : pipeline) {
      TROUPE_CHECK(entry->gpu == gpu, "a request is in another GPU's pipeline");
      TROUPE_CHECK(!models_[entry->model].adopted || Serves(*entry, there),
                   "a request runs on a runtime of somebody else");
    }
    dispatched += pipeline.size();
  }
  TROUPE_CHECK(dispatched + queue_.size() == requests_.size(), "a request is neither waiting nor dispatched");
  TROUPE_CHECK(counts_.accepted == counts_.served + counts_.failed + counts_.expired + counts_.cancelled +
                                       counts_.bounced + requests_.size() - trials_,
               "requests were lost or ended twice");
  CheckStates();
  CheckHeads();
  CheckNames();
  std::vector<std::uint32_t> held(held_.size());
  for (GpuIndex gpu = 0; gpu < holds_.size(); ++gpu) {
    if (holds_[gpu] == nullptr) continue;
    ++held[gpus_.at(gpu).device];
    TROUPE_CHECK(holds_[gpu]->hold == gpu && holds_[gpu]->gpu == kNoGpu, "a GPU is held for nobody");
  }
  TROUPE_CHECK(held == held_, "the GPUs that are kept are counted wrong");
}

}  // namespace troupe::node
