#include "node/models/orphans.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "node/parts.hpp"
#include "node/runtimes/worker_orders.hpp"

namespace troupe::node {

Bytes Orphans::WorkerUp(GpuIndex gpu, const std::string& key) {
  auto& residents = parts_.runtimes.Residents(gpu);
  const auto known = [&](const auto& resident) {
    return bool(parts_.models.held().ByPackedDigest(resident.digest(), key));
  };
  residents.erase(std::remove_if(residents.begin(), residents.end(), known), residents.end());
  Bytes sum;
  for (const auto& resident : residents) sum += Bytes(resident.bytes());
  until_[gpu] = parts_.out.now() + parts_.settings.orphan_grace;
  if (sum > Bytes(0)) parts_.out.WakeAfter(Timer::kOrphans, parts_.settings.orphan_grace);
  return sum;
}

void Orphans::OnTimer() {
  for (GpuIndex gpu = 0; gpu < until_.size(); ++gpu) {
    if (!parts_.runtimes.Up(gpu) || parts_.out.now() < until_[gpu]) continue;
    for (const auto& orphan : std::exchange(parts_.runtimes.Residents(gpu), {})) Save(gpu, orphan);
  }
}

// With every run written back there is nothing to save: the file has all that was acknowledged.
void Orphans::Save(GpuIndex gpu, const proto::ResidentModel& orphan) {
  if (parts_.settings.state_write_back == StateWriteBack::kRun) return Evict(gpu, orphan);
  ++saving_;
  parts_.orders.Give(gpu, WriteBackOrderFor(orphan.digest(), ""),
                     WriteBackPurpose(OrphanWrittenBack{gpu, orphan, parts_.runtimes.Life(gpu)}));
}

bool Orphans::Any() {
  for (GpuIndex gpu = 0; gpu < parts_.runtimes.size(); ++gpu)
    if (!parts_.runtimes.Residents(gpu).empty()) return true;
  return saving_ > 0;
}

void Orphans::StatesSaved(const OrphanWrittenBack& purpose, const absl::Status& status,
                          const std::vector<ImagePtr>& images) {
  const auto gpu = purpose.gpu;
  --saving_;
  for (const auto& image : images) parts_.states.Found(image);
  if (parts_.runtimes.Life(gpu) != purpose.life) return;
  if (status.ok() || absl::IsNotFound(status)) return Evict(gpu, purpose.orphan);
  parts_.out.Note("state-not-saved", absl::StrCat(parts_.settings.Label(gpu),
                                                  ": a model that no function has any more stays, for its "
                                                  "state could not be kept: ",
                                                  status.message()));
  Keep(gpu, purpose.orphan);
}

void Orphans::Evict(GpuIndex gpu, const proto::ResidentModel& orphan) {
  parts_.orders.Give(gpu, EvictOrderFor(orphan.digest()),
                     OrphanEvicted{gpu, orphan, parts_.runtimes.Life(gpu)});
}

void Orphans::On(const OrphanEvicted& purpose, const proto::WorkerOutcome& outcome) {
  const auto gpu = purpose.gpu;
  if (parts_.runtimes.Life(gpu) != purpose.life) return;
  parts_.requests.ReleaseSlices(gpu, StateSlices(outcome));
  const auto status = StatusOf(outcome);
  if (!status.ok() && !absl::IsNotFound(status)) return Keep(gpu, purpose.orphan);  // a run has it yet
  parts_.scheduler.OrphanGone(gpu, Bytes(purpose.orphan.bytes()));
  parts_.decisions.Decide();
}

void Orphans::Keep(GpuIndex gpu, const proto::ResidentModel& orphan) {
  *parts_.runtimes.Residents(gpu).Add() = orphan;
  parts_.out.WakeAfter(Timer::kOrphans, parts_.settings.orphan_grace);
}

}  // namespace troupe::node
