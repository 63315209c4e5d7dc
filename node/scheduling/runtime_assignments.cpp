#include "node/scheduling/runtime_assignments.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "node/scheduling/scheduler_parts.hpp"

namespace troupe::node {
namespace {

constexpr Duration kOutputsStay =
    std::chrono::minutes(1);  // whatever starts beside them: as long as a run has by default

}  // namespace

bool RuntimeAssignments::KeyWaits(const std::string& key) const {
  return std::ranges::any_of(tables_.requests.queue.waiting(), [&](ModelId model) {
    return tables_.models[model].in_region && tables_.models[model].key == key;
  });
}

// Time enough has passed since then. If not, Decide is due when it has.
bool RuntimeAssignments::Settled(Time since, Time now) {
  const Time due = since + tables_.rules.limits.settle;
  if (due > now) parts_.look_again = std::min(parts_.look_again, due);
  return due <= now;
}

// True when this runtime may be taken away for a request that finds no other: it is idle, and no request of
// its key waits. A runtime that is held for a request of the same key may be taken although others wait for it, so that no
// request waits for ever: of the requests of a model a decision looks at the first, and the hold may be of a later one. Nor
// may outputs that lie with its worker keep a runtime for ever: the workflow that has them may itself wait for a runtime, and
// computes anew what is lost. They are not lost while another runtime of the GPU is started, and just behind that: their reader
// may be what it is started for. One start behind the other keeps them for a minute.
bool RuntimeAssignments::MayTake(const RequestEntry& entry, const Gpu& gpu, Time now) {
  const RequestEntry* const holder = tables_.rights.held.HolderOf(gpu.index);
  const bool held = holder != nullptr && tables_.models[holder->model].key == tables_.models[entry.model].key;
  if (tables_.Serves(entry, gpu) || (holder != nullptr && !held) || !TakeableWithLoss(gpu)) return false;
  if (!Takeable(gpu) && !OutputsMayGo(gpu, now)) return false;
  if (!tables_.CanEverFit(entry.model, gpu) || !tables_.StateAllows(entry, gpu)) return false;
  if (tables_.rules.policies.gpu.early_binding && gpu.device != tables_.homes.Of(entry.model)) return false;
  const std::string& key = tables_.models[entry.model].key;
  if (Served(tables_.gpus.gpus(), key, gpu.device)) return false;
  if (!gpu.assigned || held) return true;
  if (KeyWaits(gpu.key)) return false;
  // A key that has a runtime elsewhere takes a second one only from a key that does not need it.
  if (Served(tables_.gpus.gpus(), key, std::nullopt)) return Settled(gpu.idle_since, now);
  // A runtime that is being started will be warm in a moment, and is taken from no key.
  return !Starting(tables_.gpus.gpus()) || Settled(entry.arrival, now);
}

bool RuntimeAssignments::OutputsMayGo(const Gpu& gpu, Time now) {
  const GpuMap& gpus = tables_.gpus.gpus();
  if (!ComingOn(gpus, gpu.device) && Settled(std::max(gpu.idle_since, LatestStart(gpus, gpu.device)), now))
    return true;
  return Settled(gpu.idle_since + kOutputsStay, now);
}

void RuntimeAssignments::SeekFor(RequestEntry& entry, const GpuChoice& choice, Time now) {
  const std::string& key = tables_.models[entry.model].key;
  if ((tables_.OneForAll() && key.empty()) || Coming(tables_.gpus.gpus(), key) ||
      (entry.request.trial && entry.request.profiled_on == kNoGpu))
    return;
  // To wait for a busy runtime is as good as to start another, unless the wait has lasted.
  if (choice.verdict == GpuVerdict::kWait && !Settled(entry.arrival, now)) return;
  if (choice.verdict == GpuVerdict::kRun) return Assign(choice.gpu, {true, key});
  const Gpu* best = nullptr;
  const auto rank = [&](const Gpu& gpu) {
    return std::tuple(gpu.unread, gpu.index != entry.hold, gpu.assigned,
                      tables_.gpus.loads().InFlightOn(gpu.device), gpu.idle_since, gpu.index);
  };
  for (const auto& [index, gpu] : tables_.gpus.gpus()) {
    if (!MayTake(entry, gpu, now)) continue;
    if (best == nullptr || rank(gpu) < rank(*best)) best = &gpu;
  }
  if (best == nullptr) return;
  const GpuIndex taken = best->index;
  if (!ClearStates(taken)) return;
  parts_.holds.Release(entry);
  Assign(taken, {true, key});
}

// Its worker may go. False: models with state are sent away first, and it may when they are gone.
bool RuntimeAssignments::ClearStates(GpuIndex index) {
  std::vector<ModelId> models = WithStates(tables_.gpus.at(index));
  std::ranges::sort(models, {},
                    [&](ModelId model) -> const std::string& { return tables_.models.NameOf(model).text(); });
  for (const ModelId model : models) {
    parts_.reservations.Evict(index, model);
    parts_.decision.departures.push_back({index, tables_.models.NameOf(model)});
  }
  return models.empty();
}

void RuntimeAssignments::Assign(GpuIndex index, const node::Serves& serves) {
  const Gpu& gpu = tables_.gpus.at(index);
  Assignment order{
      .gpu = index, .assigned = serves.assigned, .key = serves.key, .fresh = gpu.assigned, .from = gpu.key};
  ++(!serves.assigned ? parts_.counts.given_back
     : gpu.assigned   ? parts_.counts.taken
                      : parts_.counts.assigned);
  if (tables_.rights.held.HolderOf(index) != nullptr)
    parts_.holds.Release(*tables_.rights.held.HolderOf(index));
  std::erase_if(tables_.models.hints, [&](const auto& hint) { return hint.first.first == index; });
  // No request waits for a runtime without a key, so its start is not kept as coming.
  tables_.gpus.BeginAssign(index, serves.assigned ? std::optional(serves.key) : std::nullopt);
  tables_.states.WorkerGone(index);
  parts_.decision.assignments.push_back(std::move(order));
}

bool RuntimeAssignments::AtHome(const Gpu& gpu) const {
  return tables_.rules.limits.isolated ? !gpu.assigned : gpu.assigned && gpu.key.empty();
}

void RuntimeAssignments::GiveBack(Time now, Duration idle) {
  std::vector<GpuIndex> back;
  for (const auto& [index, gpu] : tables_.gpus.gpus()) {
    if (AtHome(gpu) || !Takeable(gpu) || tables_.rights.held.HolderOf(index) != nullptr) continue;
    if (now - gpu.idle_since >= idle && !KeyWaits(gpu.key)) back.push_back(index);
  }
  for (const GpuIndex index : back) {
    if (ClearStates(index)) Assign(index, {!tables_.rules.limits.isolated, {}});
  }
}

Time RuntimeAssignments::NextIdle(Duration idle) const {
  Time due = Time::max();
  for (const auto& [index, gpu] : tables_.gpus.gpus()) {
    if (gpu.worker == WorkerState::kReady && gpu.in_flight == 0 && !AtHome(gpu))
      due = std::min(due, gpu.idle_since + idle);
  }
  return due;
}

}  // namespace troupe::node
