// The node controller: models that an adopted worker has and this node does not know. They are not known yet,
// since the manager tells of its functions one by one, or not any more, since a function was removed while no
// daemon was there. Who is not known after a while is evicted; its states are written back before.
#include <algorithm>
#include <utility>

#include "actors/node/node_controller_actor.hpp"

namespace troupe::actors {

// What stays in the report is strange; the sum of it is returned.
Bytes NodeController::KeepStrangers(node::GpuIndex gpu, const std::string& key) {
  auto& residents = *gpus_[gpu].last.mutable_worker()->mutable_resident();
  const auto known = [&](const auto& resident) {
    return !models_.ByPackedDigest(resident.digest(), key).empty();
  };
  residents.erase(std::remove_if(residents.begin(), residents.end(), known), residents.end());
  Bytes sum;
  for (const auto& resident : residents) sum += Bytes(resident.bytes());
  gpus_[gpu].strangers_until = Now(this) + options_.stranger_grace;
  if (sum > Bytes(0)) After(this, options_.stranger_grace, MakeTick(kStrangers));
  return sum;
}

void NodeController::EvictStrangers() {
  for (node::GpuIndex gpu = 0; gpu < gpus_.size(); ++gpu) {
    if (!Up(gpu) || Now(this) < gpus_[gpu].strangers_until) continue;
    auto& worker = *gpus_[gpu].last.mutable_worker();
    for (auto& stranger : std::exchange(*worker.mutable_resident(), {})) SaveStranger(gpu, stranger);
  }
}

// With every run written back there is nothing to save: the file has all that was acknowledged.
void NodeController::SaveStranger(node::GpuIndex gpu, const proto::ResidentModel& stranger) {
  if (options_.write_back_each_run) return EvictStranger(gpu, stranger);
  const auto life = gpus_[gpu].last.incarnation();
  Order(gpu, WriteBackOrderFor(stranger.digest(), ""), [=, this](const proto::WorkerOutcome& outcome) {
    const auto saved = [=, this](const absl::Status& status, const auto&) {
      if (gpus_[gpu].last.incarnation() != life) return;
      if (status.ok() || absl::IsNotFound(status)) return EvictStranger(gpu, stranger);
      Note("state-not-saved", absl::StrCat(Label(gpu),
                                           ": a model that no function has any more stays, for its "
                                           "state could not be kept: ",
                                           status.message()));
      KeepStranger(gpu, stranger);
    };
    SaveImages(
        gpu, outcome, [](const proto::StateImage&) { return true; }, saved);
  });
}

void NodeController::EvictStranger(node::GpuIndex gpu, const proto::ResidentModel& stranger) {
  const auto life = gpus_[gpu].last.incarnation();
  Order(gpu, EvictOrderFor(stranger.digest()), [=, this](const proto::WorkerOutcome& outcome) {
    if (gpus_[gpu].last.incarnation() != life) return;
    ReleaseSlices(gpu, StateSlices(outcome));
    const auto status = StatusOf(outcome);
    if (!status.ok() && !absl::IsNotFound(status)) return KeepStranger(gpu, stranger);  // a run has it yet
    scheduler_.OrphanGone(gpu, Bytes(stranger.bytes()));
    Pump();
  });
}

void NodeController::KeepStranger(node::GpuIndex gpu, const proto::ResidentModel& stranger) {
  *gpus_[gpu].last.mutable_worker()->add_resident() = stranger;
  After(this, options_.stranger_grace, MakeTick(kStrangers));
}

}  // namespace troupe::actors
