#include "node/scheduling/order_outcomes.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "node/scheduling/scheduler_parts.hpp"

namespace troupe::node {

Consequences OrderOutcomes::Apply(const EvictDone& done, Time now) {
  const ModelId id = tables_.models.Find(done.model);
  if (id == kNoModel) return {};  // of an earlier life of the worker
  const ModelEntry* model = tables_.models.Adopted(id);
  const Bytes bytes = model == nullptr ? Bytes() : model->weights;
  const bool gone = done.status.ok() || absl::IsNotFound(done.status);
  // A model that was forgotten meanwhile is not a resident again: its name is gone, and nothing could evict it.
  tables_.gpus.EndEvict(done.gpu, id, gone || model == nullptr, bytes, now);
  tables_.states.EndEvict(done.gpu, id, gone);
  if (!gone) parts_.states.Book(done.gpu, id);
  parts_.names.ForgetUnused();
  return {};
}

void OrderOutcomes::EndStays(Time now) {
  for (const ModelId model : tables_.states.EndStays(now)) parts_.waiting.Activate(model);
  for (const auto& stayed : tables_.gpus.EndStays(now)) parts_.waiting.Wake(stayed.gpu);
}

// What was dispatched behind a load that failed has lost its model; each such run answers kNotResident.
void OrderOutcomes::LoadFailed(GpuIndex gpu, ModelId model, Time now) {
  const Resident* resident = tables_.gpus.at(gpu).Find(model);
  if (resident == nullptr || resident->state != ResidentState::kLoading) return;
  tables_.broadcasts.End(gpu, model);
  for (RequestEntry* const entry : tables_.requests.pipelines[gpu]) {
    if (entry->model == model) entry->pinned = false;
  }
  tables_.gpus.EndLoad(gpu, model, false, {}, now);
}

// A model that was forgotten while it was in use goes when its last use ends.
void OrderOutcomes::EvictForgotten(GpuIndex gpu, ModelId model, Consequences& effects) {
  if (tables_.models[model].adopted) return;
  const Resident* resident = tables_.gpus.at(gpu).Find(model);
  if (resident == nullptr || !resident->Idle()) return;
  tables_.gpus.BeginEvict(gpu, model);
  tables_.states.BeginEvict(gpu, model);
  ++parts_.counts.evictions;
  effects.evictions.push_back({gpu, tables_.models.NameOf(model)});
}

void OrderOutcomes::ObserveLoad(const SwapInDone& done, ModelId id) {
  const KindId kind = tables_.gpus.at(done.gpu).kind;
  tables_.times.costs.ObserveLoad(done.device_bytes, done.took, kind);
  ModelEntry* const model = tables_.models.Adopted(id);
  if (model != nullptr && done.took > Duration::zero()) tables_.times.ObserveLoad(*model, done.took, kind);
}

Consequences OrderOutcomes::Apply(const SwapInDone& done, Time now) {
  Consequences effects;
  const ModelId id = tables_.models.Find(done.model);
  if (id == kNoModel) return effects;  // of an earlier life of the worker
  if (!done.status.ok()) {
    LoadFailed(done.gpu, id, now);
    parts_.prefetcher.ForgetDemand(id);
    parts_.waiting.Wake(done.gpu);
    parts_.names.ForgetUnused();
    return effects;
  }
  const auto& from_host = tables_.gpus.at(done.gpu).host_loads;
  if (std::find(from_host.begin(), from_host.end(), id) != from_host.end()) ObserveLoad(done, id);
  tables_.broadcasts.End(done.gpu, id);
  const Resident* const coming = tables_.gpus.at(done.gpu).Find(id);
  const GpuIndex source = coming == nullptr ? kNoGpu : coming->source;
  tables_.gpus.EndLoad(done.gpu, id, true, done.device_bytes, now);
  parts_.waiting.Activate(id);
  parts_.prefetcher.MayWantCopy(id);  // another one, perhaps
  EvictForgotten(done.gpu, id, effects);
  if (source != kNoGpu) EvictForgotten(source, id, effects);  // it was read until now
  ModelEntry* const model = tables_.models.Adopted(id);
  if (model == nullptr || done.device_bytes == Bytes()) return effects;
  const bool grown = done.device_bytes > std::exchange(model->weights, done.device_bytes);
  if (grown) parts_.requests.EndUnplaceable(effects);
  return effects;
}

// The run has ended that this request led: what it claimed of its GPU is free.
void OrderOutcomes::LeaveGpu(RequestEntry& entry, Time now) {
  std::erase(tables_.requests.pipelines[entry.gpu], &entry);
  parts_.requests.LeaveFunction(entry);
  parts_.states.EndTurn(entry);
  tables_.gpus.Unpin(entry.gpu, entry.model, entry.pinned, entry.claim, now);
  entry.pinned = false;
}

// Learns from a run: when it had its weights at its begin, how long it takes; when it was alone on its GPU
// behind its own swap from the host, how long both take together.
void OrderOutcomes::ObserveRun(const RequestEntry& entry, const RunDone& done, std::uint32_t rows,
                               std::size_t requests) {
  if (entry.source == SwapSource::kLayers || entry.request.profiled_on != kNoGpu) return;
  const KindId kind = tables_.gpus.at(done.gpu).kind;
  tables_.models.batches.Observe(entry.model, rows, done.computed, kind);
  if (requests > 1) return;  // the model's costs are those of runs of one request
  const CostModel::Id cost = tables_.models[entry.model].cost;
  if (done.computed > Duration::zero()) tables_.times.costs.ObserveCompute(cost, done.computed, kind);
  if (!done.waited_for_weights) tables_.times.costs.ObserveRun(cost, done.took, kind);
  if (entry.source == SwapSource::kHost && entry.alone && done.since_swap > Duration::zero())
    tables_.times.costs.ObserveSwapped(cost, done.since_swap, kind);
}

void OrderOutcomes::EndRun(RequestEntry& entry, const absl::Status& status, Consequences& effects, Time now) {
  parts_.requests.CountForSlo(entry, !status.ok() && entry.expired ? absl::DeadlineExceededError("") : status,
                              now);
  if (!status.ok() && parts_.requests.EndAbandoned(entry, effects)) return;
  FinishKind kind = FinishKind::kFailed;
  if (status.ok()) kind = FinishKind::kServed;
  if (absl::IsDeadlineExceeded(status)) kind = FinishKind::kExpired;
  if (absl::IsCancelled(status)) kind = FinishKind::kCancelled;
  effects.finished.push_back(parts_.requests.End(entry, kind, status));
}

Consequences OrderOutcomes::Apply(const RunDone& done, Time now) {
  Consequences effects;
  RequestEntry* const found = parts_.requests.Find(done.request);
  if (found == nullptr || found->gpu != done.gpu) return effects;  // of an earlier life of the worker
  RequestEntry& entry = *found;
  const ModelId model = entry.model;  // the entry may end below
  const bool loading = entry.source != SwapSource::kResident && entry.pinned;
  if (done.end != RunEnd::kRan && loading) LoadFailed(done.gpu, model, now);
  const Gpu& gpu = tables_.gpus.at(done.gpu);
  const std::vector<RequestEntry*> requests = parts_.batches.Part(entry);
  LeaveGpu(entry, now);
  for (std::size_t i = 1; i < requests.size(); ++i) {
    std::erase(tables_.requests.pipelines[done.gpu], requests[i]);
    parts_.requests.LeaveFunction(*requests[i]);
  }
  parts_.states.Note(entry, done);
  const std::size_t own = gpu.Find(model) != nullptr ? 1 : 0;
  const bool alone =
      gpu.in_flight == 0 && gpu.evicting.empty() && gpu.residents.size() == own && gpu.strange == Bytes(0);
  if (done.pause > Duration::zero())
    tables_.rights.pauses.Note(entry.request.function, done.gpu, now + done.pause);
  const bool joined = requests.size() > 1;
  switch (done.end) {
    case RunEnd::kRan:
      Ran(requests, done, effects, now);
      break;
    case RunEnd::kNoFit:
      ++parts_.counts.no_fits;
      if (joined) {
        parts_.batches.RunApart(requests, done, effects);
      } else if (alone && own == 1 && entry.source != SwapSource::kLayers) {
        EndTooLarge(entry, done, effects);
      } else {
        Replan(entry, done, alone, effects);
        parts_.requests.EndUnplaceable(effects);
      }
      break;
    case RunEnd::kNotResident:
      tables_.gpus.Missing(done.gpu, model);
      [[fallthrough]];
    case RunEnd::kNoState:
    case RunEnd::kNotOrdered:
      for (RequestEntry* const each : requests) {
        each->host_only =
            each->host_only || each->source == SwapSource::kPeer || each->source == SwapSource::kBroadcast;
        Replan(*each, done, alone, effects);
      }
      break;
  }
  EvictForgotten(done.gpu, model, effects);
  parts_.waiting.Wake(done.gpu);
  parts_.waiting.ActivateResidents(gpu);
  parts_.names.ForgetUnused();
  return effects;
}

void OrderOutcomes::Ran(const std::vector<RequestEntry*>& requests, const RunDone& done,
                        Consequences& effects, Time now) {
  const RequestEntry& first = *requests.front();
  if (done.status.ok()) {
    ObserveRun(first, done, Batches::RowsOf(requests), requests.size());
    tables_.models.hints.erase({done.gpu, first.model});
  } else if (requests.size() > 1) {
    return parts_.batches.RunApart(requests, done, effects);
  } else if (done.cut) {
    tables_.times.costs.NoteCut(tables_.models[first.model].cost, tables_.gpus.at(done.gpu).kind);
  }
  for (RequestEntry* const entry : requests) EndRun(*entry, done.status, effects, now);
}

// The weights are there and nothing else is: it is this request that is too large, not its function.
void OrderOutcomes::EndTooLarge(RequestEntry& entry, const RunDone& done, Consequences& effects) {
  if (parts_.requests.EndAbandoned(entry, effects)) return;
  effects.finished.push_back(parts_.requests.End(
      entry, FinishKind::kFailed,
      absl::FailedPreconditionError(
          absl::StrCat("function '", entry.request.function.text(),
                       "': a run of this size does not fit beside the weights on GPU ",
                       tables_.gpus.at(done.gpu).device, " (", FormatBytes(tables_.gpus.at(done.gpu).memory),
                       ", of which ", FormatBytes(done.free), " are free); send a smaller batch"))));
}

void OrderOutcomes::LearnNoFit(const RequestEntry& entry, const RunDone& done, bool alone) {
  if (!tables_.models[entry.model].adopted) return;
  FitHint& hint = tables_.models.hints[{done.gpu, entry.model}];
  if (alone) hint.impossible = true;
  const Gpu& gpu = tables_.gpus.at(done.gpu);
  const Bytes need = tables_.Need(tables_.LookFor(entry), gpu.Find(entry.model));
  const Bytes missing = done.largest < need ? need - done.largest : KiB(64);
  hint.extra = std::min(std::max(hint.extra * 2, missing), gpu.memory);
  tables_.gpus.CorrectFree(done.gpu, done.free);
}

void OrderOutcomes::Replan(RequestEntry& entry, const RunDone& done, bool alone, Consequences& effects) {
  if (parts_.requests.EndAbandoned(entry, effects)) return;
  if (entry.source == SwapSource::kLayers) {
    entry.whole = true;  // nothing is learned of the room that its model needs
  } else if (done.end == RunEnd::kNoFit) {
    LearnNoFit(entry, done, alone);
  }
  --entry.attempts;  // no worker was lost, and nothing ran
  if (++entry.replans > tables_.rules.limits.max_replans) {
    const std::string why =
        done.end == RunEnd::kNotOrdered ? absl::StrCat(" (the last: ", done.status.message(), ")") : "";
    effects.finished.push_back(
        parts_.requests.End(entry, FinishKind::kFailed,
                            absl::UnavailableError(absl::StrCat("function '", entry.request.function.text(),
                                                                "' found no room on a GPU in ", entry.replans,
                                                                " tries", why, "; try again later"))));
    return;
  }
  parts_.requests.Requeue(entry, effects);
}

}  // namespace troupe::node
