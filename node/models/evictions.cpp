#include "node/models/evictions.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "node/parts.hpp"
#include "node/runtimes/worker_orders.hpp"

namespace troupe::node {

void Evictions::Order(GpuIndex gpu, const ModelNumber& model) {
  parts_.routers.ResidencyChanged();
  parts_.states.AnyAt(gpu, model) ? WriteBackFirst(gpu, model) : Evict(gpu, model, false);
}

void Evictions::Evict(GpuIndex gpu, const ModelNumber& model, bool with_states) {
  const auto life = parts_.runtimes.Life(gpu);
  parts_.orders.GiveFor(model, gpu, EvictOrderFor(parts_.models.PackedDigest(model)),
                        EvictionOrdered{gpu, model, life, with_states});
}

void Evictions::On(const EvictionOrdered& purpose, const proto::WorkerOutcome& outcome) {
  const auto gpu = purpose.gpu;
  if (!parts_.runtimes.Lives(gpu, purpose.life)) return;
  // Of states that do not count: the others were read before.
  parts_.requests.ReleaseSlices(gpu, StateSlices(outcome));
  auto status = StatusOf(outcome);
  if (absl::IsNotFound(status)) status = absl::OkStatus();  // it is gone: what was asked for
  // Before anything is decided anew: the worker may be given to another key, and nothing is being written on
  // the next one.
  if (purpose.with_states) Written(gpu);
  parts_.decisions.CarryOut(parts_.scheduler.Apply(EvictDone{gpu, purpose.model, status}, parts_.out.now()));
}

void Evictions::WriteBackFirst(GpuIndex gpu, const ModelNumber& model) {
  const auto life = parts_.runtimes.Life(gpu);
  ++waits_[gpu].writing;
  parts_.models.BeginUse(model, false);  // its name has to be known until the eviction is ordered
  parts_.write_backs.Order(gpu, model, {}, EvictionWrittenBack{gpu, model, life});
}

void Evictions::StatesSaved(const EvictionWrittenBack& purpose, const absl::Status& status,
                            const std::vector<ImagePtr>& images) {
  const auto gpu = purpose.gpu;
  const bool same = parts_.runtimes.Lives(gpu, purpose.life);
  same ? parts_.states.LeftWith(gpu, purpose.model, images) : parts_.write_backs.Restore(images);
  if (same && status.ok()) Evict(gpu, purpose.model, true);
  parts_.models.EndUse(purpose.model, false);
  if (!same || status.ok()) return;
  parts_.out.Note("state-not-saved",
                  absl::StrCat(parts_.settings.Label(gpu), ": ", status.message(), "; its model stays"));
  auto consequences = TurnBack(gpu, status);
  Written(gpu);
  consequences.Add(parts_.scheduler.Apply(EvictDone{gpu, purpose.model, status}, parts_.out.now()));
  parts_.decisions.CarryOut(consequences);
}

// What was decided for this GPU meanwhile counts on room that does not come.
Consequences Evictions::TurnBack(GpuIndex gpu, const absl::Status& why) {
  Consequences consequences;
  for (const auto& [start, ahead] : std::exchange(waits_[gpu].behind, {})) {
    consequences.Add(ahead ? parts_.swaps.NotBrought(start.dispatch, why)
                           : parts_.dispatches.TurnBack(start, why));
    parts_.models.EndUse(start.dispatch.model, true);
  }
  return consequences;
}

void Evictions::OrderLeave(GpuIndex gpu, const ModelNumber& model, const StateNumber& key) {
  if (parts_.settings.state_write_back == StateWriteBack::kRun) return Drop(gpu, model, key);
  ++waits_[gpu].writing;
  parts_.models.BeginUse(model, false);
  parts_.write_backs.Order(gpu, model, key, StateLeaving{gpu, model, key, parts_.runtimes.Life(gpu)});
}

// Its model may have been evicted meanwhile, and have stayed: then a run may use the state again.
void Evictions::StateWritten(const StateLeaving& purpose, const absl::Status& status,
                             const std::vector<ImagePtr>& images) {
  const auto& [gpu, model, key, life] = purpose;
  const bool same = parts_.runtimes.Lives(gpu, life);
  same ? parts_.states.Keep(images) : parts_.write_backs.Restore(images);
  const auto* state = parts_.scheduler.states().Find(key);
  const bool leaves = state == nullptr || state->leaving;
  const bool saved = status.ok() || absl::IsNotFound(status);
  if (same && leaves && saved) Drop(gpu, model, key);
  if (same && !saved)
    parts_.out.Note("state-not-saved", absl::StrCat(parts_.settings.Label(gpu), ": ", status.message(),
                                                    "; the state stays there"));
  auto consequences = same && !saved ? TurnBack(gpu, status) : Consequences();
  if (leaves && !saved) parts_.scheduler.EndLeave(key, false, parts_.out.now());
  parts_.models.EndUse(model, false);
  // After a failure it is not tried again at once.
  if (saved) parts_.sequences.Left();
  if (same) Written(gpu);
  parts_.decisions.CarryOut(consequences);
}

void Evictions::Drop(GpuIndex gpu, const ModelNumber& model, const StateNumber& key) {
  if (parts_.models.Find(model) != nullptr && parts_.runtimes.Up(gpu))
    parts_.orders.GiveFor(model, gpu, DropOrderFor(parts_.models.PackedDigest(model), key.text()),
                          NoPurpose{});
  parts_.scheduler.EndLeave(key, true, parts_.out.now());
}

bool Evictions::Writing(GpuIndex gpu) const {
  const auto it = waits_.find(gpu);
  return it != waits_.end() && it->second.writing > 0;
}

void Evictions::StartBehind(const HeldStart& start) {
  parts_.models.BeginUse(start.dispatch.model, true);  // the orders that wait will read its host copy
  waits_[start.dispatch.gpu].behind.push_back({.start = start});
}

void Evictions::PrefetchBehind(const Dispatch& dispatch) {
  parts_.models.BeginUse(dispatch.model, true);
  waits_[dispatch.gpu].behind.push_back({.start = {dispatch, 0}, .ahead = true});
}

// What was decided for this GPU meanwhile may go on, in its order.
void Evictions::Written(GpuIndex gpu) {
  auto& waits = waits_[gpu];
  TROUPE_CHECK(waits.writing > 0, "more was written back than was begun");
  if (--waits.writing == 0) StartAll(std::exchange(waits.behind, {}), false);
}

// Its worker is gone: what waited for it starts nothing any more, and ends its use of the models.
void Evictions::Void(GpuIndex gpu) {
  const auto it = waits_.find(gpu);
  if (it == waits_.end()) return;
  auto behind = std::move(it->second.behind);
  waits_.erase(it);
  StartAll(std::move(behind), true);
}

void Evictions::StartAll(std::vector<Behind> behind, bool lost) {
  for (const auto& [start, ahead] : behind) {
    // A request whose worker was lost knows it.
    if (!ahead) parts_.dispatches.Start(start);
    if (ahead && !lost) parts_.swaps.Bring(start.dispatch);
    parts_.models.EndUse(start.dispatch.model, true);
  }
}

}  // namespace troupe::node
