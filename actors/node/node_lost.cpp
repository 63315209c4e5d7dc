// The node controller: models that a dead worker held come to the other GPUs, and to the new worker, without
// being asked for: the hottest first, by runs of zeros as in trials, into room that is free, while nobody
// waits. What is asked for before its turn comes by its requests.
#include "actors/node/node_controller_actor.hpp"

namespace troupe::actors {

void NodeController::NoteLost(node::GpuIndex gpu) {
  if (!options_.refill) return;
  for (const auto& [copy, there] : scheduler_.ResidentsOf(gpu)) {
    // What ran comes back by its requests. And should it have killed its worker, it is not to kill the next.
    const bool ran = there->state != node::ResidentState::kResident || there->pins > 0;
    if (!ran && scheduler_.HolderCount(copy) == 1) AddLost(copy, there->bytes, there->last_use);
  }
}

void NodeController::AddLost(const std::string& copy, Bytes bytes, Time last_use) {
  lost_.Add({copy, bytes, demand_.Lately(node::DigestOf(copy), Now(this)), last_use});
}

void NodeController::Refill() {
  while (!lost_.empty() && !trials_.busy() && !scheduler_.draining() && scheduler_.waiting() == 0) {
    const auto* model = models_.Find(lost_.hottest().copy);
    const bool wanted = model != nullptr && model->adopted && model->function.state().empty() &&
                        copies_.Usable(lost_.hottest().copy) &&
                        scheduler_.HolderCount(lost_.hottest().copy) == 0;
    if (wanted && !HasRoom(lost_.hottest())) return;
    const auto copy = lost_.Take().copy;
    if (!wanted) continue;
    trials_.Occupy();
    if (!StartTrial(copy, model->function, true)) trials_.End();
  }
}

// Nobody is evicted for a model that nobody waits for: there is an idle GPU with room for it and its run.
bool NodeController::HasRoom(const LostModel& lost) const {
  for (node::GpuIndex gpu = 0; gpu < gpus_.size(); ++gpu) {
    if (!ServesCopy(gpu, lost.copy)) continue;
    const auto& there = scheduler_.gpus().at(gpu);
    const Bytes bytes = std::max(lost.bytes, scheduler_.WeightsOf(lost.copy));
    if (there.in_flight == 0 && there.Free() >= bytes + Bytes(bytes.count() / 4)) return true;
  }
  return false;
}

}  // namespace troupe::actors
