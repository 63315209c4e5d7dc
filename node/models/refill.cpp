#include "node/models/refill.hpp"

#include <algorithm>

#include "node/parts.hpp"

namespace troupe::node {

void Refill::On(const RuntimeLost& event) {
  if (parts_.settings.refill == RefillRule::kOnDemand) return;
  for (const auto& [copy, there] : parts_.scheduler.ResidentsOf(event.gpu)) {
    // A model that ran when the worker died comes back with its next request only: should it have killed its
    // worker, it must not kill the next one.
    const bool ran = there->state != ResidentState::kResident || there->pins > 0;
    if (!ran && parts_.scheduler.HolderCount(copy) == 1) Add(copy, there->bytes, there->last_use);
  }
  if (parts_.settings.keep_weights == KeepWeights::kOff || event.unfit) return;
  awaited_[event.gpu] = parts_.out.now() + parts_.settings.keeper_patience;
  parts_.out.WakeAt(Timer::kRefill, awaited_[event.gpu]);
}

bool Refill::AwaitsWorker() const {
  for (GpuIndex gpu = 0; gpu < awaited_.size(); ++gpu) {
    const bool comes = !parts_.runtimes.Up(gpu) && !parts_.runtimes.Unfit(parts_.settings.DeviceOf(gpu));
    if (comes && parts_.out.now() < awaited_[gpu]) return true;
  }
  return false;
}

void Refill::Add(const ModelNumber& copy, Bytes bytes, Time last_use) {
  const double demand = parts_.requests.demand().Lately(copy->digest, parts_.out.now());
  lost_.Add({copy, bytes, demand, last_use});
}

void Refill::Again(const ModelNumber& copy) {
  Add(copy, parts_.scheduler.WeightsOf(copy), parts_.out.now());
}

void Refill::Begin() {
  auto& scheduler = parts_.scheduler;
  if (lost_.empty() || AwaitsWorker()) return;
  while (!lost_.empty() && !parts_.trials.busy() && !scheduler.draining() && scheduler.waiting() == 0) {
    const auto* model = parts_.models.Find(lost_.hottest().copy);
    const bool wanted = model != nullptr && model->adopted && model->function.state().empty() &&
                        parts_.copies.Usable(lost_.hottest().copy) &&
                        scheduler.HolderCount(lost_.hottest().copy) == 0;
    if (wanted && !HasRoom(lost_.hottest())) return;
    const auto copy = lost_.Take().copy;
    if (wanted) parts_.trials.BeginRefill(copy, model->function);
  }
}

// Refill evicts no model: it needs an idle GPU with room for the model and its run.
bool Refill::HasRoom(const LostModel& lost) const {
  for (GpuIndex gpu = 0; gpu < parts_.runtimes.size(); ++gpu) {
    if (!parts_.runtimes.Serves(gpu, lost.copy)) continue;
    const auto& there = parts_.scheduler.gpus().at(gpu);
    const Bytes bytes = std::max(lost.bytes, parts_.scheduler.WeightsOf(lost.copy));
    if (there.in_flight == 0 && there.Free() >= bytes + Bytes(bytes.count() / 4)) return true;
  }
  return false;
}

}  // namespace troupe::node
