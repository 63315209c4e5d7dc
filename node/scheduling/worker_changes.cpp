#include "node/scheduling/worker_changes.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "node/scheduling/scheduler_parts.hpp"

namespace troupe::node {

std::string WorkerChanges::WorkerGone(GpuIndex gpu, const std::string& why) const {
  return absl::StrCat("the worker of GPU ", tables_.gpus.at(gpu).device, " is gone: ", why);
}

Consequences WorkerChanges::LoseGpu(GpuIndex gpu, WorkerState state, const std::string& why) {
  tables_.gpus.WorkerGone(gpu, state);
  tables_.broadcasts.Lose(gpu);
  tables_.states.WorkerGone(gpu);
  tables_.models.batches.ForgetGpu(gpu);
  if (tables_.rights.held.HolderOf(gpu) != nullptr) parts_.holds.Release(*tables_.rights.held.HolderOf(gpu));
  std::erase_if(tables_.models.hints, [&](const auto& hint) { return hint.first.first == gpu; });
  Consequences effects;
  for (RequestEntry* const lost : std::exchange(tables_.requests.pipelines[gpu], {})) {
    RequestEntry& entry = *lost;
    parts_.requests.LeaveFunction(entry);
    parts_.states.EndTurn(entry);
    entry.pinned = false;
    entry.leader = nullptr;
    tables_.requests.suspects += std::exchange(entry.suspect, true) ? 0 : 1;
    parts_.prefetcher.ForgetDemand(entry.model);
    if (parts_.requests.EndAbandoned(entry, effects)) continue;
    if (entry.request.named != kNoGpu) {  // its router counts the attempt, and plans it again
      effects.finished.push_back(parts_.requests.End(
          entry, FinishKind::kBounced, absl::UnavailableError(WorkerGone(gpu, why)), proto::BOUNCE_NO_GPU));
      continue;
    }
    if (entry.attempts >= (entry.request.trial ? 1 : tables_.rules.limits.max_attempts)) {
      const std::string message =
          absl::StrCat("function '", entry.request.function.text(), "' lost ", entry.attempts,
                       " GPU workers in a row (the last: ", why, "); the request is given up");
      effects.finished.push_back(
          parts_.requests.End(entry, FinishKind::kFailed, absl::UnavailableError(message)));
    } else {
      parts_.requests.Requeue(entry, effects);
    }
  }
  parts_.named.BounceFrom(tables_.gpus.at(gpu).device, WorkerGone(gpu, why), effects);
  parts_.waiting.Wake(gpu);
  return effects;
}

Consequences WorkerChanges::Apply(const WorkerReady& ready, Time now) {
  // A worker that comes up while its GPU looks busy has lost what was there.
  Consequences effects = LoseGpu(ready.gpu, WorkerState::kAbsent, "replaced by a new worker");
  std::vector<ModelId> resident;
  for (const ResidentReport& report : ready.resident) {
    resident.push_back(parts_.names.Intern(report.model));
    if (ModelEntry* model = tables_.models.Adopted(resident.back()))
      model->weights = std::max(model->weights, report.bytes);
  }
  tables_.gpus.WorkerUp(ready, resident, now);
  parts_.requests.EndUnplaceable(effects);
  parts_.waiting.ActivateAll();
  parts_.prefetcher.NoteOwners();
  parts_.names.ForgetUnused();
  return effects;
}

Consequences WorkerChanges::Apply(const WorkerLost& lost, Time) {
  Consequences effects = LoseGpu(lost.gpu, WorkerState::kAbsent, lost.why);
  // Functions that own a part of this GPU may run elsewhere until it has a worker again.
  if (!tables_.rights.owned.empty()) parts_.waiting.ActivateAll();
  parts_.names.ForgetUnused();
  return effects;
}

Consequences WorkerChanges::Apply(const GpuUnfit& unfit, Time) {
  Consequences effects = LoseGpu(unfit.gpu, WorkerState::kUnfit, unfit.why);
  parts_.requests.EndUnplaceable(effects);
  parts_.names.ForgetUnused();
  return effects;
}

void WorkerChanges::FoundResident(GpuIndex gpu, const ResidentReport& report, Time now) {
  const ModelId id = parts_.names.Intern(report.model);
  tables_.gpus.FoundResident(gpu, id, report.bytes, now);
  parts_.waiting.Activate(id);
  parts_.names.ForgetUnused();
}

}  // namespace troupe::node
