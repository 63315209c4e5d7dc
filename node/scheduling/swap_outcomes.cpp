// The outcomes' half of the swap scheduler's book-keeping: what a worker's answer, or its death, does.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "node/scheduling/swap_scheduler.hpp"

namespace troupe::node {

Consequences SwapScheduler::Apply(const EvictDone& done, Time now) {
  const ModelId id = tables_.Find(done.model);
  if (id == kNoName) return {};  // of an earlier life of the worker
  const Model* model = tables_.Adopted(id);
  const Bytes bytes = model == nullptr ? Bytes(std::numeric_limits<std::uint32_t>::max()) : model->weights;
  const bool gone = done.status.ok() || absl::IsNotFound(done.status);
  tables_.gpus.EndEvict(done.gpu, id, gone, bytes, now);
  tables_.states.EndEvict(done.gpu, id, gone);
  ForgetNames();
  return {};
}

// What was dispatched behind a load that failed has lost its model; each such run answers kNotResident.
void SwapScheduler::LoadFailed(GpuIndex gpu, ModelId model, Time now) {
  const Resident* resident = tables_.gpus.at(gpu).Find(model);
  if (resident == nullptr || resident->state != ResidentState::kLoading) return;
  tables_.broadcasts.End(gpu, model);
  for (Entry* const entry : tables_.pipelines[gpu]) {
    if (entry->model == model) entry->pinned = false;
  }
  tables_.gpus.EndLoad(gpu, model, false, {}, now);
}

// A model that was forgotten while it was in use goes when its last use ends.
void SwapScheduler::EvictForgotten(GpuIndex gpu, ModelId model, Consequences& effects) {
  if (tables_.models[model].adopted) return;
  const Resident* resident = tables_.gpus.at(gpu).Find(model);
  if (resident == nullptr || !resident->Idle()) return;
  tables_.gpus.BeginEvict(gpu, model);
  tables_.states.BeginEvict(gpu, model);
  ++counts_.evictions;
  effects.evictions.push_back({gpu, tables_.NameOf(model)});
}

void SwapScheduler::ObserveLoad(const SwapInDone& done, ModelId id) {
  tables_.costs.ObserveLoad(done.device_bytes, done.took);
  Model* const model = tables_.Adopted(id);
  if (model != nullptr && done.took > Duration::zero()) model->load.Observe(done.took);
}

Consequences SwapScheduler::Apply(const SwapInDone& done, Time now) {
  Consequences effects;
  const ModelId id = tables_.Find(done.model);
  if (id == kNoName) return effects;  // of an earlier life of the worker
  if (!done.status.ok()) {
    LoadFailed(done.gpu, id, now);
    copies_.ForgetDemand(id);
    Wake(done.gpu);
    ForgetNames();
    return effects;
  }
  const auto& from_host = tables_.gpus.at(done.gpu).host_loads;
  if (std::find(from_host.begin(), from_host.end(), id) != from_host.end()) ObserveLoad(done, id);
  tables_.broadcasts.End(done.gpu, id);
  const Resident* const coming = tables_.gpus.at(done.gpu).Find(id);
  const GpuIndex source = coming == nullptr ? kNoGpu : coming->source;
  tables_.gpus.EndLoad(done.gpu, id, true, done.device_bytes, now);
  Activate(id);
  copies_.MayWantCopy(id);  // another one, perhaps
  EvictForgotten(done.gpu, id, effects);
  if (source != kNoGpu) EvictForgotten(source, id, effects);  // it was read until now
  Model* const model = tables_.Adopted(id);
  if (model == nullptr || done.device_bytes == Bytes()) return effects;
  const bool grown = done.device_bytes > std::exchange(model->weights, done.device_bytes);
  if (grown) EndUnplaceable(effects);
  return effects;
}

void SwapScheduler::LeaveGpu(Entry& entry, Time now) {
  std::erase(tables_.pipelines[entry.gpu], &entry);
  LeaveFunction(entry);
  EndTurn(entry);
  tables_.gpus.Unpin(entry.gpu, entry.model, entry.pinned, entry.activation, entry.work, now);
  entry.pinned = false;
}

void SwapScheduler::LeaveFunction(const Entry& entry) {
  --serving_[entry.function].dispatched;
}

// A request whose run ended while nobody waited for it any more. True when it ended here.
bool SwapScheduler::EndAbandoned(Entry& entry, Consequences& effects) {
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

// Requests that are wrong in themselves say nothing about how the function is served.
void SwapScheduler::CountForSlo(const Entry& entry, const absl::Status& status, Time now) {
  if (entry.request.trial || absl::IsInvalidArgument(status) || absl::IsCancelled(status)) return;
  const bool in_time = status.ok() && now <= entry.request.deadline;
  if (slo_) slo_->Ended(entry.request.function, entry.request.percentile, in_time, now - entry.arrival);
  if (tables_.late && entry.request.deadline != Time::max())
    tables_.late->Ended(entry.request.function, entry.request.percentile, in_time);
}

// What a run taught: of one that had its weights when it began, how long it takes; of one alone on its GPU
// behind its own swap from the host, how long both take together.
void SwapScheduler::ObserveRun(const Entry& entry, const RunDone& done) {
  if (entry.source == SwapSource::kLayers) return;
  const CostModel::Id cost = tables_.models[entry.model].cost;
  if (done.computed > Duration::zero()) tables_.costs.ObserveCompute(cost, done.computed);
  if (!done.waited_for_weights) tables_.costs.ObserveRun(cost, done.took);
  if (entry.source == SwapSource::kHost && entry.alone && done.since_swap > Duration::zero())
    tables_.costs.ObserveSwapped(cost, done.since_swap);
}

void SwapScheduler::EndRun(Entry& entry, const absl::Status& status, Consequences& effects, Time now) {
  CountForSlo(entry, !status.ok() && entry.expired ? absl::DeadlineExceededError("") : status, now);
  if (!status.ok() && EndAbandoned(entry, effects)) return;
  FinishKind kind = FinishKind::kFailed;
  if (status.ok()) kind = FinishKind::kServed;
  if (absl::IsDeadlineExceeded(status)) kind = FinishKind::kExpired;
  if (absl::IsCancelled(status)) kind = FinishKind::kCancelled;
  effects.finished.push_back(End(entry, kind, status));
}

Consequences SwapScheduler::Apply(const RunDone& done, Time now) {
  Consequences effects;
  const auto it = requests_.find(done.request);
  if (it == requests_.end() || it->second.gpu != done.gpu)
    return effects;  // of an earlier life of the worker
  Entry& entry = it->second;
  const ModelId model = entry.model;  // the entry may end below
  const bool loading = entry.source != SwapSource::kResident && entry.pinned;
  if (done.end != RunEnd::kRan && loading) LoadFailed(done.gpu, model, now);
  const Gpu& gpu = tables_.gpus.at(done.gpu);
  LeaveGpu(entry, now);
  NoteState(entry, done);
  const std::size_t own = gpu.Find(model) != nullptr ? 1 : 0;
  const bool alone =
      gpu.in_flight == 0 && gpu.evicting.empty() && gpu.residents.size() == own && gpu.strange == Bytes(0);
  switch (done.end) {
    case RunEnd::kRan:
      if (done.status.ok()) {
        ObserveRun(entry, done);
        tables_.hints.erase({done.gpu, model});
      } else if (done.cut) {
        tables_.costs.NoteCut(tables_.models[model].cost);
      }
      EndRun(entry, done.status, effects, now);
      break;
    case RunEnd::kNoFit:
      ++counts_.no_fits;
      if (alone && own == 1 && entry.source != SwapSource::kLayers) {
        EndTooLarge(entry, done, effects);
      } else {
        Replan(entry, done, alone, effects);
        EndUnplaceable(effects);
      }
      break;
    case RunEnd::kNotResident:
      tables_.gpus.Missing(done.gpu, model);
      entry.host_only =
          entry.host_only || entry.source == SwapSource::kPeer || entry.source == SwapSource::kBroadcast;
      Replan(entry, done, alone, effects);
      break;
  }
  EvictForgotten(done.gpu, model, effects);
  Wake(done.gpu);
  ActivateResidents(gpu);
  ForgetNames();
  return effects;
}

// The weights are there and nothing else is: it is this request that is too large, not its function.
void SwapScheduler::EndTooLarge(Entry& entry, const RunDone& done, Consequences& effects) {
  if (EndAbandoned(entry, effects)) return;
  effects.finished.push_back(
      End(entry, FinishKind::kFailed,
          absl::FailedPreconditionError(absl::StrCat(
              "function '", entry.request.function,
              "': a run of this size does not fit beside the weights on GPU ",
              tables_.gpus.at(done.gpu).device, " (", FormatBytes(tables_.gpus.at(done.gpu).memory),
              ", of which ", FormatBytes(done.free), " are free); send a smaller batch"))));
}

void SwapScheduler::LearnNoFit(const Entry& entry, const RunDone& done, bool alone) {
  if (!tables_.models[entry.model].adopted) return;
  FitHint& hint = tables_.hints[{done.gpu, entry.model}];
  if (alone) hint.impossible = true;
  const Gpu& gpu = tables_.gpus.at(done.gpu);
  const Bytes need = tables_.Need(tables_.LookFor(entry), gpu.Find(entry.model));
  const Bytes missing = done.largest < need ? need - done.largest : KiB(64);
  hint.extra = std::min(std::max(hint.extra * 2, missing), gpu.memory);
  tables_.gpus.CorrectFree(done.gpu, done.free);
}

void SwapScheduler::Replan(Entry& entry, const RunDone& done, bool alone, Consequences& effects) {
  if (EndAbandoned(entry, effects)) return;
  if (entry.source == SwapSource::kLayers) {
    entry.whole = true;  // nothing is learned of the room that its model needs
  } else if (done.end == RunEnd::kNoFit) {
    LearnNoFit(entry, done, alone);
  }
  --entry.attempts;  // no worker was lost, and nothing ran
  if (++entry.replans > tables_.limits.max_replans) {
    effects.finished.push_back(End(entry, FinishKind::kFailed,
                                   absl::UnavailableError(absl::StrCat(
                                       "function '", entry.request.function, "' found no room on a GPU in ",
                                       entry.replans, " tries; try again later"))));
    return;
  }
  Requeue(entry, effects);
}

// Back to its old place in the queue.
void SwapScheduler::Requeue(Entry& entry, Consequences& effects) {
  const Model* const known = tables_.Adopted(entry.model);
  const bool fits = known != nullptr && tables_.CanEverFit(entry.model);
  if (known == nullptr) {
    effects.finished.push_back(End(entry, FinishKind::kBounced,
                                   absl::UnavailableError("the model was taken off this node"),
                                   proto::BOUNCE_NOT_ADOPTED));
  } else if (tables_.gpus.AllUnfit()) {
    effects.finished.push_back(End(entry, FinishKind::kBounced,
                                   absl::UnavailableError("no GPU of this node is fit"),
                                   proto::BOUNCE_NO_GPU));
  } else if (!fits) {
    effects.finished.push_back(End(entry, FinishKind::kFailed, CannotFit(entry.request.function, *known)));
  } else {
    entry.gpu = kNoGpu;
    if (slo_) entry.key.place = slo_->PlaceOf(entry.request.function);
    Enqueue(entry);
  }
}

Consequences SwapScheduler::LoseGpu(GpuIndex gpu, WorkerState state, const std::string& why) {
  tables_.gpus.WorkerGone(gpu, state);
  tables_.broadcasts.Lose(gpu);
  tables_.states.WorkerGone(gpu);
  if (tables_.held.HolderOf(gpu) != nullptr) Release(*tables_.held.HolderOf(gpu));
  std::erase_if(tables_.hints, [&](const auto& hint) { return hint.first.first == gpu; });
  Consequences effects;
  for (Entry* const lost : std::exchange(tables_.pipelines[gpu], {})) {
    Entry& entry = *lost;
    LeaveFunction(entry);
    EndTurn(entry);
    entry.pinned = false;
    tables_.suspects += std::exchange(entry.suspect, true) ? 0 : 1;
    copies_.ForgetDemand(entry.model);
    if (EndAbandoned(entry, effects)) continue;
    if (entry.attempts >= (entry.request.trial ? 1 : tables_.limits.max_attempts)) {
      const std::string message =
          absl::StrCat("function '", entry.request.function, "' lost ", entry.attempts,
                       " GPU workers in a row (the last: ", why, "); the request is given up");
      effects.finished.push_back(End(entry, FinishKind::kFailed, absl::UnavailableError(message)));
    } else {
      Requeue(entry, effects);
    }
  }
  Wake(gpu);
  return effects;
}

Consequences SwapScheduler::Apply(const WorkerReady& ready, Time now) {
  // A worker that comes up while its GPU looks busy has lost what was there.
  Consequences effects = LoseGpu(ready.gpu, WorkerState::kAbsent, "replaced by a new worker");
  std::vector<ModelId> resident;
  for (const ResidentReport& report : ready.resident) {
    resident.push_back(Intern(report.model));
    if (Model* model = tables_.Adopted(resident.back()))
      model->weights = std::max(model->weights, report.bytes);
  }
  tables_.gpus.WorkerUp(ready, resident, now);
  EndUnplaceable(effects);
  ActivateAll();
  ForgetNames();
  return effects;
}

Consequences SwapScheduler::Apply(const WorkerLost& lost, Time) {
  Consequences effects = LoseGpu(lost.gpu, WorkerState::kAbsent, lost.why);
  ForgetNames();
  return effects;
}

Consequences SwapScheduler::Apply(const GpuUnfit& unfit, Time) {
  Consequences effects = LoseGpu(unfit.gpu, WorkerState::kUnfit, unfit.why);
  EndUnplaceable(effects);
  ForgetNames();
  return effects;
}

void SwapScheduler::FoundResident(GpuIndex gpu, const ResidentReport& report, Time now) {
  const ModelId id = Intern(report.model);
  tables_.gpus.FoundResident(gpu, id, report.bytes, now);
  Activate(id);
  ForgetNames();
}

// Waiting requests that no GPU of this node can serve any more.
void SwapScheduler::EndUnplaceable(Consequences& effects) {
  const auto fits = [&](ModelId model) { return tables_.CanEverFit(model); };
  if (std::ranges::all_of(tables_.queue.waiting(), fits)) return;
  std::vector<Entry*> ending;
  for (const ModelId model : tables_.queue.InOrder()) {
    if (fits(model)) continue;
    for (const auto& [key, entry] : *tables_.queue.Find(model)) ending.push_back(entry);
  }
  for (Entry* const entry : ending) {
    if (tables_.gpus.AllUnfit()) {
      effects.finished.push_back(End(*entry, FinishKind::kBounced,
                                     absl::UnavailableError("no GPU of this node is fit"),
                                     proto::BOUNCE_NO_GPU));
    } else {
      effects.finished.push_back(
          End(*entry, FinishKind::kFailed, CannotFit(entry->request.function, tables_.models[entry->model])));
    }
  }
}

}  // namespace troupe::node
