#include "node/scheduling/scheduler_tables.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace troupe::node {

namespace {

// Requests that wait for one GPU in its own queue, where the gpu policy has such queues.
constexpr std::uint32_t kLocalQueue = 1024;

// How many links come from the host: each switch that several GPUs share has one, and so has each other GPU.
std::uint32_t LinkCount(std::size_t gpus, const Topology& topology) {
  std::size_t links = gpus;
  for (const auto& shared : topology.Switches()) links -= std::min(links, shared.size() - 1);
  return static_cast<std::uint32_t>(std::max<std::size_t>(links, 1));
}

}  // namespace

SchedulerRules::SchedulerRules(SchedulerLimits given, SchedulerPolicies chosen, Topology machine)
    : limits(given),
      policies(chosen),
      // Runtimes that serve one key each are decided request by request.
      by_gpu(chosen.gpu.locality && !given.isolated),
      topology(std::move(machine)) {
  TROUPE_CHECK(
      policies.ordering.rank != nullptr && policies.gpu.choose != nullptr && policies.eviction != nullptr,
      "every slot of the scheduler needs a policy");
  TROUPE_CHECK(limits.concurrency > 0 && limits.swap_ahead > 0 && limits.max_attempts > 0,
               "a limit of zero serves nothing");
  if (policies.gpu.queues == GpuQueues::kNone) limits.swap_ahead = 1;
  if (by_gpu) limits.swap_ahead = kLocalQueue;
  const bool for_hits = policies.gpu.places_for_hits && !limits.isolated && !limits.LoadsOccupy();
  places.depth = limits.PipelineDepth();
  places.most = for_hits ? 2 * places.depth : places.depth;
}

std::uint32_t HomeTable::Of(ModelId model) const {
  if (!binding.late()) return binding.Home(model);
  if (devices.empty()) return kNoGpu;
  const auto home = devices.find(model);
  return home == devices.end() ? kNoGpu : home->second;
}

SchedulerTables::SchedulerTables(SchedulerLimits limits, SchedulerPolicies policies, CostDefaults costs,
                                 Topology topology)
    : rules(limits, policies, std::move(topology)),
      times(models, costs),
      homes{.binding = FunctionBinding(policies.binding), .devices = {}} {
  if (policies.ordering.late != nullptr) requests.late.emplace(*policies.ordering.late);
}

void SchedulerTables::AddRuntime(GpuIndex gpu, Bytes memory, std::uint32_t device, KindId kind) {
  gpus.Add(gpu, memory, device, !rules.limits.isolated, kind);
  times.kinds = std::max(times.kinds, kind + 1);
  rights.held.Add(gpu, device);
  pressure.links = LinkCount(gpus.gpus().size(), rules.topology);
  auto& pipelines = requests.pipelines;
  pipelines.resize(std::max<std::size_t>(pipelines.size(), std::size_t{gpu} + 1));
}

RequestLook SchedulerTables::LookFor(const RequestEntry& entry) const {
  const ModelEntry& model = models[entry.model];
  const bool any_states = !states.all().empty();
  const FunctionStates::State* const state = any_states ? states.Find(entry.request.state) : nullptr;
  // Of sequences' states the others can leave.
  Bytes of_states;
  if (any_states)
    of_states = state != nullptr && state->sequence ? state->bytes : states.BytesOf(entry.model);
  return {.entry = entry,
          .model = model,
          .state = state,
          .whole = model.weights + model.activation + of_states,
          .load = times.LoadTimeOf(model)};
}

bool SchedulerTables::MayRunOn(const NodeRequest& request, const Gpu& gpu) const {
  if (rights.owned.empty() || request.profiled_on != kNoGpu) return true;
  if (rights.owned.MayRun(request.function, request.model, gpu.device)) return true;
  return std::ranges::none_of(gpus.by_index(), [&](const Gpu* own) {
    return own != nullptr && own->worker == WorkerState::kReady &&
           rights.owned.InstancesOn(request.function, request.model, own->device) > 0;
  });
}

Bytes SchedulerTables::StateNeed(const RequestLook& look, const Resident* resident) const {
  if (look.state == nullptr) return Bytes();
  const bool there = resident != nullptr && resident->states.contains(look.entry.request.state);
  return there ? Bytes() : look.state->bytes;
}

Bytes SchedulerTables::Need(const RequestLook& look, const Resident* resident) const {
  const Bytes run = StateNeed(look, resident) + look.model.activation;
  return resident != nullptr ? run : run + look.model.weights;
}

bool SchedulerTables::StateAllows(const RequestLook& look, const Gpu& gpu) const {
  if (look.state == nullptr) return true;
  if (look.state->gpu != kNoGpu && look.state->gpu != gpu.index) return false;
  // Nor does a state come beside weights from another GPU: they may not come, and then it would still be on
  // its way from the host when all is planned anew.
  const ModelId model = look.entry.model;
  const Resident* resident = gpu.Find(model);
  return resident == nullptr || resident->state != ResidentState::kLoading ||
         std::ranges::find(gpu.host_loads, model) != gpu.host_loads.end();
}

bool SchedulerTables::CanEverFit(ModelId id, const Gpu& gpu) const {
  const ModelEntry& model = models[id];
  return CanEverFit(id, model.weights + model.activation + states.BytesOf(id), gpu);
}

bool SchedulerTables::CanEverFit(ModelId model, Bytes whole, const Gpu& gpu) const {
  if (gpu.worker == WorkerState::kUnfit || whole > gpu.memory) return false;
  if (models.hints.empty()) return true;
  const auto hint = models.hints.find({gpu.index, model});
  return hint == models.hints.end() || !hint->second.impossible;
}

bool SchedulerTables::CanEverFit(ModelId model) const {
  const auto& all = gpus.gpus();
  return std::any_of(all.begin(), all.end(), [&](const auto& gpu) { return CanEverFit(model, gpu.second); });
}

}  // namespace troupe::node
