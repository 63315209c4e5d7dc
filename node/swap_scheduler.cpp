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
  auto binding = FindBindingPolicy(names.binding);
  if (!binding.ok()) return binding.status();
  if (*binding != BindingRule::kLate && !gpu->early_binding)
    return absl::InvalidArgumentError(absl::StrCat("the binding '", names.binding,
                                                   "' was given the gpu policy '", names.gpu,
                                                   "', which uses any GPU; choose the gpu policy 'bound'"));
  return SchedulerPolicies{.ordering = *ordering, .gpu = *gpu, .eviction = *eviction, .binding = *binding};
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
  if (policies_.gpu.queues == GpuQueues::kNone) limits_.swap_ahead = 1;
  // Runtimes that serve one key each are decided request by request.
  if (policies_.gpu.locality && !limits_.isolated) locality_ = MakeLocalityQueue(*policies_.gpu.locality);
  if (locality_) limits_.swap_ahead = kLocalQueue;
  TROUPE_CHECK(
      policies_.ordering.rank != nullptr && policies_.gpu.choose != nullptr && policies_.eviction != nullptr,
      "every slot of the scheduler needs a policy");
  TROUPE_CHECK(limits_.concurrency > 0 && limits_.swap_ahead > 0 && limits_.max_attempts > 0,
               "a limit of zero serves nothing");
}

void SwapScheduler::AddRuntime(GpuIndex gpu, Bytes memory, std::uint32_t device) {
  gpus_.Add(gpu, memory, device, !limits_.isolated);
  pipelines_[gpu];
}

std::vector<std::string> SwapScheduler::AdoptedModels() const {
  std::vector<std::string> models;
  for (const auto& [name, model] : models_) models.push_back(name);
  std::ranges::sort(models);
  return models;
}

Effects SwapScheduler::DescribeModel(const std::string& model, Bytes weights, Bytes activation) {
  // A device that holds the model knows better than an estimate.
  for (const GpuIndex gpu : gpus_.Holders(model))
    weights = std::max(weights, gpus_.at(gpu).Find(model)->bytes);
  Model& described = models_[model];
  described.key = KeyOf(model);
  described.weights = weights;
  described.activation = activation;
  Effects effects;
  EndUnplaceable(effects);
  return effects;
}

const SwapScheduler::Model* SwapScheduler::FindCopy(const std::string& model) const {
  if (const auto it = models_.find(model); it != models_.end()) return &it->second;
  const std::string digest = DigestOf(model);
  const std::pair<const std::string, Model>* first = nullptr;
  for (const auto& copy : models_) {
    if (DigestOf(copy.first) == digest && (first == nullptr || copy.first < first->first)) first = &copy;
  }
  return first == nullptr ? nullptr : &first->second;
}

bool SwapScheduler::Heavy(const std::string& model) const {
  const Model* copy = FindCopy(model);
  return copy != nullptr && costs_.Heavy(DigestOf(model), copy->weights);
}

Bytes SwapScheduler::WeightsOf(const std::string& model) const {
  const Model* copy = FindCopy(model);
  return copy == nullptr ? Bytes() : copy->weights;
}

// As long as it has been here: what its loads took; else by its size.
Duration SwapScheduler::LoadTimeOf(const std::string& name) const {
  const Model& model = models_.at(name);
  return model.load.Or(costs_.LoadTime(model.weights));
}

// What the requests behind the first one of this model take of the GPUs that have it.
Duration SwapScheduler::QueuedFor(const std::string& model) const {
  const std::size_t waiting = WaitingFor(model);
  if (waiting < 2) return {};
  const auto holders = std::max<std::uint32_t>(gpus_.HolderCount(model), 1);
  return costs_.RunTime(DigestOf(model)) * static_cast<Duration::rep>(waiting - 1) / holders;
}

absl::Status SwapScheduler::CannotFit(const std::string& function, const std::string& name) const {
  const Model& model = models_.at(name);
  return absl::FailedPreconditionError(
      absl::StrCat("function '", function, "' needs ", FormatBytes(model.weights + model.activation),
                   " of GPU memory (weights ", FormatBytes(model.weights),
                   "), and the largest GPU of this node has ", FormatBytes(gpus_.LargestMemory()),
                   " with nothing else on it; give the node a larger GPU or deploy a smaller model"));
}

// The answer to a request that may not enter; kServed stands for 'it may'.
Finished SwapScheduler::Refuse(const NodeRequest& request, Time now) const {
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
  if (!models_.contains(request.model)) {
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
  if (!CanEverFit(request.model)) {
    return {
        .id = request.id, .kind = FinishKind::kFailed, .status = CannotFit(request.function, request.model)};
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
  Submitted submitted;
  if (!binding_.late() && !KeepRoom(request.model, now, submitted.evictions)) {
    submitted.accepted = false;
    submitted.finished = {
        .id = request.id, .kind = FinishKind::kFailed, .status = NoRoomKept(request.function, request.model)};
    return submitted;
  }
  Entry entry;
  entry.request = request;
  entry.arrival = now;
  entry.key = MakeOrderingKey(policies_.ordering,
                              {.priority = request.priority, .arrival = now, .deadline = request.deadline},
                              next_sequence_++, slo_ ? slo_->PlaceOf(request.function) : FunctionPlace{});
  Model& model = models_.at(request.model);
  entry.asked_before = std::exchange(model.asked, now);
  if (entry.asked_before != Time::min()) model.gap.Observe(now - entry.asked_before);
  Enqueue(entry);
  states_.Enter(request.state, request.id);
  if (request.expiry != Time::max()) expiries_.emplace(request.expiry, request.id);
  requests_.emplace(request.id, std::move(entry));
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
  for (auto it = requests_.lower_bound({router, 0}); it != requests_.end() && it->first.router == router;
       ++it) {
    ids.push_back(it->first);
  }
  Effects effects;
  for (const RequestId& id : ids) {
    Cancelled cancelled = Cancel(id);
    if (cancelled.verdict == CancelVerdict::kCancelled)
      effects.finished.push_back(std::move(cancelled.finished));
    if (cancelled.verdict == CancelVerdict::kInFlight) effects.cancel.push_back({id, cancelled.gpu});
  }
  return effects;
}

void SwapScheduler::SetInRegion(const std::string& name, bool in_region) {
  const auto model = models_.find(name);
  if (model == models_.end() || model->second.in_region == in_region) return;
  LeaveHeads(name);
  model->second.in_region = in_region;
  in_region ? --out_of_region_ : ++out_of_region_;
  Activate(name);
  if (in_region) return;
  // A GPU is kept for no request that cannot take it.
  std::vector<RequestId> idle;
  for (const auto& [gpu, id] : holds_) {
    if (requests_.at(id).request.model == name) idle.push_back(id);
  }
  for (const RequestId& id : idle) Release(requests_.at(id));
}

std::vector<std::string> SwapScheduler::WaitingForRegion() const {
  std::vector<std::string> models;
  if (out_of_region_ == 0) return models;
  for (const auto& head : queue_.heads()) {
    if (!models_.at(head.model).in_region) models.push_back(head.model);
  }
  return models;
}

Effects SwapScheduler::ForgetModel(const std::string& model) {
  Effects effects;
  std::vector<RequestId> ids;
  if (const auto* waiting = queue_.Find(model)) {
    for (const auto& [key, id] : *waiting) ids.push_back(id);
  }
  for (const RequestId& id : ids) {
    effects.finished.push_back(End(requests_.at(id), FinishKind::kBounced,
                                   absl::UnavailableError("the model was taken off this node"),
                                   proto::BOUNCE_NOT_ADOPTED));
  }
  SetInRegion(model, true);
  models_.erase(model);
  homes_.erase(model);
  binding_.Forget(model);
  std::erase_if(hints_, [&](const auto& hint) { return hint.first.second == model; });
  for (const GpuIndex gpu : gpus_.Holders(model)) {
    if (!gpus_.at(gpu).Find(model)->Idle()) continue;
    Evict(gpu, model);
    effects.evictions.push_back({gpu, model});
  }
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
  for (const auto& [gpu, pipeline] : pipelines_) {
    TROUPE_CHECK(pipeline.size() == gpus_.at(gpu).in_flight, "pipeline and GPU table disagree");
    TROUPE_CHECK(gpus_.InFlightOn(gpus_.at(gpu).device) <= MostInFlight(),
                 "a pipeline is deeper than its limit");
    for (const RequestId& id : pipeline) {
      const auto model = models_.find(requests_.at(id).request.model);
      TROUPE_CHECK(
          model == models_.end() || (gpus_.at(gpu).assigned && gpus_.at(gpu).key == model->second.key),
          "a request runs on a runtime of somebody else");
    }
    dispatched += pipeline.size();
  }
  std::size_t running = 0;
  for (const auto& [function, there] : running_) running += there.requests;
  TROUPE_CHECK(running == dispatched, "functions run that nobody dispatched");
  TROUPE_CHECK(dispatched + queue_.size() == requests_.size(), "a request is neither waiting nor dispatched");
  TROUPE_CHECK(counts_.accepted == counts_.served + counts_.failed + counts_.expired + counts_.cancelled +
                                       counts_.bounced + requests_.size() - trials_,
               "requests were lost or ended twice");
  CheckStates();
  CheckHeads();
  for (const auto& [gpu, id] : holds_) {
    TROUPE_CHECK(requests_.at(id).hold == gpu && requests_.at(id).gpu == kNoGpu, "a GPU is held for nobody");
  }
}

}  // namespace troupe::node
