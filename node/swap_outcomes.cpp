// The outcomes' half of the swap scheduler's book-keeping: what a worker's answer, or its death, does.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "node/swap_scheduler.hpp"

namespace troupe::node {

Effects SwapScheduler::Apply(const EvictDone& done, Time now) {
  const auto model = models_.find(done.model);
  const Bytes bytes =
      model == models_.end() ? Bytes(std::numeric_limits<std::uint32_t>::max()) : model->second.weights;
  const bool gone = done.status.ok() || absl::IsNotFound(done.status);
  gpus_.EndEvict(done.gpu, done.model, gone, bytes, now);
  states_.EndEvict(done.gpu, done.model, gone);
  return {};
}

// What was dispatched behind a load that failed has lost its model; each such run answers kNotResident.
void SwapScheduler::LoadFailed(GpuIndex gpu, const std::string& model) {
  const Resident* resident = gpus_.at(gpu).Find(model);
  if (resident == nullptr || resident->state != ResidentState::kLoading) return;
  for (const RequestId& id : pipelines_.at(gpu)) {
    Entry& entry = requests_.at(id);
    if (entry.request.model == model) entry.pinned = false;
  }
  gpus_.EndLoad(gpu, model, false, {});
}

// A model that was forgotten while it was in use goes when its last use ends.
void SwapScheduler::EvictForgotten(GpuIndex gpu, const std::string& model, Effects& effects) {
  if (models_.contains(model)) return;
  const Resident* resident = gpus_.at(gpu).Find(model);
  if (resident == nullptr || resident->state != ResidentState::kResident) return;
  gpus_.BeginEvict(gpu, model);
  states_.BeginEvict(gpu, model);
  ++counts_.evictions;
  effects.evictions.push_back({gpu, model});
}

void SwapScheduler::ObserveLoad(const SwapInDone& done) {
  costs_.ObserveLoad(done.device_bytes, done.took);
  const auto model = models_.find(done.model);
  if (model != models_.end() && done.took > Duration::zero()) model->second.load.Observe(done.took);
}

Effects SwapScheduler::Apply(const SwapInDone& done, Time) {
  Effects effects;
  if (!done.status.ok()) {
    LoadFailed(done.gpu, done.model);
    Wake(done.gpu);
    return effects;
  }
  const auto& from_host = gpus_.at(done.gpu).host_loads;
  if (std::find(from_host.begin(), from_host.end(), done.model) != from_host.end()) ObserveLoad(done);
  gpus_.EndLoad(done.gpu, done.model, true, done.device_bytes);
  Activate(done.model);
  EvictForgotten(done.gpu, done.model, effects);
  const auto model = models_.find(done.model);
  if (model == models_.end() || done.device_bytes == Bytes()) return effects;
  const bool grown = done.device_bytes > std::exchange(model->second.weights, done.device_bytes);
  if (grown) EndUnplaceable(effects);
  return effects;
}

void SwapScheduler::LeaveGpu(Entry& entry, Time now) {
  std::erase(pipelines_.at(entry.gpu), entry.request.id);
  LeaveFunction(entry);
  EndTurn(entry);
  gpus_.Unpin(entry.gpu, entry.request.model, entry.pinned, entry.activation, now);
  entry.pinned = false;
}

void SwapScheduler::LeaveFunction(const Entry& entry) {
  const auto running = running_.find(entry.request.function);
  if (--running->second.requests == 0) running_.erase(running);
}

// A request whose run ended while nobody waited for it any more. True when it ended here.
bool SwapScheduler::EndAbandoned(Entry& entry, Effects& effects) {
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
  if (!slo_ || entry.request.trial || absl::IsInvalidArgument(status) || absl::IsCancelled(status)) return;
  const bool in_time = status.ok() && now <= entry.request.deadline;
  slo_->Ended(entry.request.function, entry.request.percentile, in_time, now - entry.arrival);
}

// What a run taught: of one that had its weights when it began, how long it takes; of one alone on its GPU
// behind its own swap from the host, how long both take together.
void SwapScheduler::ObserveRun(const Entry& entry, const RunDone& done) {
  if (entry.source == SwapSource::kLayers) return;
  if (!done.waited_for_weights) costs_.ObserveRun(DigestOf(entry.request.model), done.took);
  if (entry.source == SwapSource::kHost && entry.alone && done.since_swap > Duration::zero())
    costs_.ObserveSwapped(DigestOf(entry.request.model), done.since_swap);
}

void SwapScheduler::EndRun(Entry& entry, const absl::Status& status, Effects& effects, Time now) {
  CountForSlo(entry, !status.ok() && entry.expired ? absl::DeadlineExceededError("") : status, now);
  if (!status.ok() && EndAbandoned(entry, effects)) return;
  FinishKind kind = FinishKind::kFailed;
  if (status.ok()) kind = FinishKind::kServed;
  if (absl::IsDeadlineExceeded(status)) kind = FinishKind::kExpired;
  if (absl::IsCancelled(status)) kind = FinishKind::kCancelled;
  effects.finished.push_back(End(entry, kind, status));
}

Effects SwapScheduler::Apply(const RunDone& done, Time now) {
  Effects effects;
  const auto it = requests_.find(done.request);
  if (it == requests_.end() || it->second.gpu != done.gpu)
    return effects;  // of an earlier life of the worker
  Entry& entry = it->second;
  const std::string model = entry.request.model;  // the entry may end below
  const bool loading = entry.source != SwapSource::kResident && entry.pinned;
  if (done.end != RunEnd::kRan && loading) LoadFailed(done.gpu, model);
  const Gpu& gpu = gpus_.at(done.gpu);
  LeaveGpu(entry, now);
  NoteState(entry, done);
  const std::size_t own = gpu.Find(model) != nullptr ? 1 : 0;
  const bool alone =
      gpu.in_flight == 0 && gpu.evicting.empty() && gpu.residents.size() == own && gpu.strange == Bytes(0);
  switch (done.end) {
    case RunEnd::kRan:
      if (done.status.ok()) {
        ObserveRun(entry, done);
        hints_.erase({done.gpu, model});
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
      gpus_.Missing(done.gpu, model);
      entry.host_only = entry.host_only || entry.source == SwapSource::kPeer;
      Replan(entry, done, alone, effects);
      break;
  }
  EvictForgotten(done.gpu, model, effects);
  Wake(done.gpu);
  ActivateResidents(gpu);
  return effects;
}

// The weights are there and nothing else is: it is this request that is too large, not its function.
void SwapScheduler::EndTooLarge(Entry& entry, const RunDone& done, Effects& effects) {
  if (EndAbandoned(entry, effects)) return;
  effects.finished.push_back(
      End(entry, FinishKind::kFailed,
          absl::FailedPreconditionError(
              absl::StrCat("function '", entry.request.function,
                           "': a run of this size does not fit beside the weights on GPU ",
                           gpus_.at(done.gpu).device, " (", FormatBytes(gpus_.at(done.gpu).memory),
                           ", of which ", FormatBytes(done.free), " are free); send a smaller batch"))));
}

void SwapScheduler::LearnNoFit(const Entry& entry, const RunDone& done, bool alone) {
  if (!models_.contains(entry.request.model)) return;
  FitHint& hint = hints_[{done.gpu, entry.request.model}];
  if (alone) hint.impossible = true;
  const Gpu& gpu = gpus_.at(done.gpu);
  const Bytes need = Need(entry, gpu);
  const Bytes missing = done.largest < need ? need - done.largest : KiB(64);
  hint.extra = std::min(std::max(hint.extra * 2, missing), gpu.memory);
  gpus_.CorrectFree(done.gpu, done.free);
}

void SwapScheduler::Replan(Entry& entry, const RunDone& done, bool alone, Effects& effects) {
  if (EndAbandoned(entry, effects)) return;
  if (entry.source == SwapSource::kLayers) {
    entry.whole = true;  // nothing is learned of the room that its model needs
  } else if (done.end == RunEnd::kNoFit) {
    LearnNoFit(entry, done, alone);
  }
  --entry.attempts;  // no worker was lost, and nothing ran
  if (++entry.replans > limits_.max_replans) {
    effects.finished.push_back(End(entry, FinishKind::kFailed,
                                   absl::UnavailableError(absl::StrCat(
                                       "function '", entry.request.function, "' found no room on a GPU in ",
                                       entry.replans, " tries; try again later"))));
    return;
  }
  Requeue(entry, effects);
}

// Back to its old place in the queue.
void SwapScheduler::Requeue(Entry& entry, Effects& effects) {
  const bool known = models_.contains(entry.request.model);
  const bool fits = known && CanEverFit(entry.request.model);
  if (!known) {
    effects.finished.push_back(End(entry, FinishKind::kBounced,
                                   absl::UnavailableError("the model was taken off this node"),
                                   proto::BOUNCE_NOT_ADOPTED));
  } else if (gpus_.AllUnfit()) {
    effects.finished.push_back(End(entry, FinishKind::kBounced,
                                   absl::UnavailableError("no GPU of this node is fit"),
                                   proto::BOUNCE_NO_GPU));
  } else if (!fits) {
    effects.finished.push_back(
        End(entry, FinishKind::kFailed, CannotFit(entry.request.function, entry.request.model)));
  } else {
    entry.gpu = kNoGpu;
    if (slo_) entry.key.place = slo_->PlaceOf(entry.request.function);
    Enqueue(entry);
  }
}

Effects SwapScheduler::LoseGpu(GpuIndex gpu, WorkerState state, const std::string& why) {
  gpus_.WorkerGone(gpu, state);
  states_.WorkerGone(gpu);
  if (const auto hold = holds_.find(gpu); hold != holds_.end()) Release(requests_.at(hold->second));
  std::erase_if(hints_, [&](const auto& hint) { return hint.first.first == gpu; });
  Effects effects;
  for (const RequestId& id : std::exchange(pipelines_.at(gpu), {})) {
    Entry& entry = requests_.at(id);
    LeaveFunction(entry);
    EndTurn(entry);
    entry.pinned = false;
    suspects_ += std::exchange(entry.suspect, true) ? 0 : 1;
    if (EndAbandoned(entry, effects)) continue;
    if (entry.attempts >= (entry.request.trial ? 1 : limits_.max_attempts)) {
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

Effects SwapScheduler::Apply(const WorkerReady& ready, Time now) {
  // A worker that comes up while its GPU looks busy has lost what was there.
  Effects effects = LoseGpu(ready.gpu, WorkerState::kAbsent, "replaced by a new worker");
  gpus_.WorkerUp(ready, now);
  for (const ResidentReport& report : ready.resident) {
    const auto model = models_.find(report.model);
    if (model != models_.end()) model->second.weights = std::max(model->second.weights, report.bytes);
  }
  EndUnplaceable(effects);
  ActivateAll();
  return effects;
}

Effects SwapScheduler::Apply(const WorkerLost& lost, Time) {
  return LoseGpu(lost.gpu, WorkerState::kAbsent, lost.why);
}

Effects SwapScheduler::Apply(const GpuUnfit& unfit, Time) {
  Effects effects = LoseGpu(unfit.gpu, WorkerState::kUnfit, unfit.why);
  EndUnplaceable(effects);
  return effects;
}

// Waiting requests that no GPU of this node can serve any more.
void SwapScheduler::EndUnplaceable(Effects& effects) {
  std::vector<RequestId> ids;
  for (const auto& head : queue_.heads()) {
    if (CanEverFit(head.model)) continue;
    for (const auto& [key, id] : *queue_.Find(head.model)) ids.push_back(id);
  }
  for (const RequestId& id : ids) {
    Entry& entry = requests_.at(id);
    if (gpus_.AllUnfit()) {
      effects.finished.push_back(End(entry, FinishKind::kBounced,
                                     absl::UnavailableError("no GPU of this node is fit"),
                                     proto::BOUNCE_NO_GPU));
    } else {
      effects.finished.push_back(
          End(entry, FinishKind::kFailed, CannotFit(entry.request.function, entry.request.model)));
    }
  }
}

}  // namespace troupe::node
