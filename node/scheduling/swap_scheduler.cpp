// What the scheduler does with models and states as wholes, and the order of its parts in a decision.
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
  auto prefetch = FindPrefetchPolicy(names.prefetch);
  if (!prefetch.ok()) return prefetch.status();
  auto binding = FindBindingPolicy(names.binding);
  if (!binding.ok()) return binding.status();
  auto batching = FindBatchingPolicy(names.batching);
  if (!batching.ok()) return batching.status();
  if (*binding != BindingRule::kLate && !gpu->early_binding)
    return absl::InvalidArgumentError(absl::StrCat("the binding '", names.binding,
                                                   "' was given the gpu policy '", names.gpu,
                                                   "', which uses any GPU; choose the gpu policy 'bound'"));
  return SchedulerPolicies{.ordering = *ordering,
                           .gpu = *gpu,
                           .eviction = *eviction,
                           .prefetch = *prefetch,
                           .binding = *binding,
                           .batching = *batching};
}

absl::Status CheckIsolation(const PolicyNames& names, const SchedulerPolicies& policies, bool isolated) {
  if (!isolated || !policies.gpu.locality) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the gpu policy '", names.gpu,
      "' knows one runtime on each GPU, and isolated runtimes were asked for; choose another gpu policy, or share "
      "the runtimes"));
}

SwapScheduler::SwapScheduler(SchedulerLimits limits, SchedulerPolicies policies, CostDefaults costs,
                             Topology topology)
    : SchedulerView(limits, policies, costs, std::move(topology)) {}

void SwapScheduler::AddRuntime(GpuIndex gpu, Bytes memory, std::uint32_t device, KindId kind) {
  parts_.tables.AddRuntime(gpu, memory, device, kind);
  parts_.waiting.AddRuntimes();
  parts_.by_gpu.AddRuntimes();
}

Consequences SwapScheduler::DescribeModel(const ModelNumber& name, Bytes weights,
                                          std::optional<Bytes> activation) {
  const ModelId id = parts_.names.Intern(name);
  // A device that holds the model knows better than an estimate.
  for (const GpuIndex gpu : parts_.tables.gpus.Holders(id))
    weights = std::max(weights, parts_.tables.gpus.at(gpu).Find(id)->bytes);
  ModelEntry& described = parts_.tables.models[id];
  const bool is_new = !std::exchange(described.adopted, true);
  described.weights = weights;
  described.activation = activation.value_or(Bytes(0));
  described.prepared = activation.has_value();
  Consequences effects;
  parts_.requests.EndUnplaceable(effects);
  if (is_new) parts_.prefetcher.NoteAdopted(id);
  parts_.names.ForgetUnused();
  return effects;
}

void SwapScheduler::SetOwned(const FunctionNumber& function, std::vector<OwnedGpus::Part> parts) {
  SchedulerTables& tables = parts_.tables;
  if (!tables.homes.binding.late() || tables.rules.policies.gpu.early_binding) return;
  const auto activate = [&](const ModelNumber& model, std::uint32_t) {
    if (const ModelId id = tables.models.Find(model); id != kNoModel) parts_.waiting.Activate(id);
  };
  tables.rights.owned.ForEach(activate);
  tables.rights.owned.Set(function, std::move(parts));
  tables.rights.owned.ForEach(activate);
  parts_.prefetcher.NoteOwners();
}

Consequences SwapScheduler::ForgetModel(const ModelNumber& name) {
  Consequences effects;
  const ModelId id = parts_.tables.models.Find(name);
  if (id == kNoModel) return effects;
  std::vector<RequestEntry*> waiting;
  if (const auto* requests = parts_.tables.requests.queue.Find(id)) {
    for (const auto& [key, entry] : *requests) waiting.push_back(entry);
  }
  for (RequestEntry* const entry : waiting) {
    effects.finished.push_back(parts_.requests.End(
        *entry, FinishKind::kBounced, absl::UnavailableError("the model was taken off this node"),
        proto::BOUNCE_NOT_ADOPTED));
  }
  SetInRegion(name, true);
  ModelEntry& model = parts_.tables.models[id];
  if (model.adopted) parts_.names.NoteForgotten(id);
  model = {.cost = model.cost, .requests = model.requests, .key = std::move(model.key)};
  parts_.tables.homes.devices.erase(id);
  parts_.tables.models.batches.Forget(id);
  parts_.tables.homes.binding.Forget(id);
  std::erase_if(parts_.tables.models.hints, [&](const auto& hint) { return hint.first.second == id; });
  parts_.tables.gpus.EndStays(Time::min(), id);  // its name is known now, and later no more
  const std::vector<GpuIndex> holders = parts_.tables.gpus.Holders(id);
  for (const GpuIndex gpu : holders) {
    if (!parts_.tables.gpus.at(gpu).Find(id)->Idle()) continue;
    parts_.reservations.Evict(gpu, id);
    effects.evictions.push_back({gpu, name});
  }
  parts_.names.ForgetUnused();
  return effects;
}

void SwapScheduler::SetInRegion(const ModelNumber& name, bool in_region) {
  const ModelId id = parts_.tables.models.Find(name);
  ModelEntry* const model = parts_.tables.models.Adopted(id);
  if (model == nullptr || model->in_region == in_region) return;
  model->in_region = in_region;
  in_region ? --out_of_region_ : ++out_of_region_;
  if (parts_.tables.requests.queue.Find(id) != nullptr) parts_.tables.requests.queue.LookAway(id);
  parts_.waiting.Activate(id);
  if (in_region) return;
  // A GPU is kept for no request that cannot take it.
  for (RequestEntry* const holder : parts_.tables.rights.held.HoldersOf(id)) parts_.holds.Release(*holder);
}

std::vector<ModelNumber> SwapScheduler::WaitingForRegion() const {
  std::vector<ModelNumber> models;
  if (out_of_region_ == 0) return models;
  for (const ModelId id : parts_.tables.requests.queue.InOrder()) {
    if (!parts_.tables.models[id].in_region) models.push_back(parts_.tables.models.NameOf(id));
  }
  return models;
}

void SwapScheduler::DeclareState(const StateNumber& state, const ModelNumber& model, Bytes bytes,
                                 bool sequence) {
  parts_.tables.states.Declare(state, parts_.names.Intern(model), bytes, sequence);
}

Consequences SwapScheduler::ForgetState(const StateNumber& state) {
  Consequences effects;
  parts_.states.EndLine(state, FinishKind::kBounced,
                        absl::UnavailableError("the function's state was taken off this node"),
                        proto::BOUNCE_NOT_ADOPTED, effects);
  parts_.tables.states.Forget(state);
  parts_.names.ForgetUnused();
  return effects;
}

Consequences SwapScheduler::FailState(const StateNumber& state, const absl::Status& why) {
  Consequences effects;
  parts_.states.EndLine(state, FinishKind::kFailed, why, proto::BOUNCE_UNSPECIFIED, effects);
  return effects;
}

void SwapScheduler::HoldState(const StateNumber& state, bool held) {
  if (FunctionStates::State* found = parts_.tables.states.Find(state)) found->held = held;
}

Decision SwapScheduler::Decide(Time now) {
  parts_.waiting.YieldLate(now);
  parts_.requests.Reorder(now);
  parts_.look_again = Time::max();
  for (const GpuIndex gpu : parts_.tables.rights.pauses.End(now)) parts_.waiting.Wake(gpu);
  parts_.outcomes.EndStays(now);
  parts_.named.Decide(now);
  parts_.tables.rules.by_gpu ? parts_.by_gpu.Decide(now) : parts_.by_request.Decide(now);
  parts_.decision.wanted = WaitingForRegion();
  parts_.decision.due = NextDue();
  return std::exchange(parts_.decision, {});
}

Time SwapScheduler::NextDue() const {
  const SchedulerTables& tables = parts_.tables;
  return std::min({parts_.look_again, parts_.requests.NextExpiry(), tables.rights.pauses.next_end(),
                   tables.gpus.next_stay_end(), tables.states.next_stay_end()});
}

void SwapScheduler::Check() const {
  const SchedulerTables& tables = parts_.tables;
  tables.gpus.Check();
  for (const auto& [gpu, there] : tables.gpus.gpus()) {
    const std::vector<RequestEntry*>& pipeline = tables.requests.pipelines[gpu];
    const auto runs = std::ranges::count(pipeline, nullptr, &RequestEntry::leader);
    TROUPE_CHECK(static_cast<std::size_t>(runs) == there.in_flight, "pipeline and GPU table disagree");
    const bool named = std::ranges::any_of(
        pipeline, [](const RequestEntry* entry) { return entry->request.named != kNoGpu; });
    TROUPE_CHECK(named || tables.gpus.loads().InFlightOn(there.device) <= tables.rules.places.most,
                 "a pipeline is deeper than its limit");
    for (const RequestEntry* entry : pipeline) {
      TROUPE_CHECK(entry->gpu == gpu, "a request is in another GPU's pipeline");
      TROUPE_CHECK(entry->leader == nullptr || std::ranges::find(pipeline, entry->leader) != pipeline.end(),
                   "a request goes with a run that has ended");
      TROUPE_CHECK(!tables.models[entry->model].adopted || tables.Serves(*entry, there),
                   "a request runs on a runtime of another key");
    }
  }
  parts_.requests.Check();
  parts_.states.Check();
  parts_.waiting.Check();
  parts_.names.Check();
  tables.rights.held.Check();
}

}  // namespace troupe::node
