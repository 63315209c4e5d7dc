// The node controller: what an operator sees of its GPUs, its host region and its swaps.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "actors/node/node_controller_actor.hpp"

namespace troupe::actors {

namespace {

std::int64_t Since(Time then, Time now) {
  return now > then ? (now - then).count() : 0;
}

}  // namespace

void NodeController::Show(proto::NodeDescription& node) {
  swaps_.AddTo(*node.mutable_swaps());
  node.mutable_swaps()->set_no_fits(scheduler_.counts().no_fits);
  ShowRegion(*node.mutable_region());
  node.set_region_bytes(node.region().bytes());
  node.set_region_used_bytes(node.region().used_bytes());
  for (std::uint32_t i = 0; i < gpus_.size(); ++i) {
    auto& status = *node.mutable_gpus(static_cast<int>(DeviceOf(i)));
    ShowModels(i, status);
    ShowWork(i, status);
    ShowRuntimes(i, status);
  }
}

void NodeController::NoteSwap(std::uint32_t gpu, SwapDone swap) {
  const auto words = [this](const std::string& digest) {
    const auto* model = models_.Find(digest);
    // One that was given up meanwhile has no function any more.
    return absl::StrCat("'", model == nullptr ? digest.substr(0, 12) : model->function.key().name(), "'");
  };
  if (swap.source == ModelWas::kPeer || swap.source == ModelWas::kBroadcast) swap.peer = DeviceOf(swap.peer);
  // What does not fit is planned anew: it belongs to swapping, and happens as often.
  const bool usual = swap.status.ok() || absl::IsResourceExhausted(swap.status);
  Note(usual ? cluster::kSwapEvent : "swap-failed", SwapLine(DeviceOf(gpu), swap, words));
  swaps_.Swapped(gpu, std::move(swap));
}

void NodeController::ShowFunction(const std::string& digest,
                                  google::protobuf::RepeatedPtrField<std::string>& functions) {
  if (const auto* model = models_.Find(digest)) functions.Add(std::string(model->function.key().name()));
}

void NodeController::ShowModels(std::uint32_t index, proto::GpuStatus& status) {
  const auto now = Now(this);
  const auto& gpu = scheduler_.gpus().at(index);
  status.set_queued(status.queued() + gpu.in_flight);
  status.set_promised_bytes(status.promised_bytes() + gpu.promised.count());
  status.set_overhead_bytes(status.overhead_bytes() + gpu.overhead.count());
  for (const auto& [digest, there] : scheduler_.ResidentsOf(index)) {
    const auto& resident = *there;
    auto& model = *status.add_models();
    model.set_digest(node::DigestOf(digest));
    ShowFunction(digest, *model.mutable_functions());
    model.set_state(node::Name(resident.state));
    model.set_bytes(resident.bytes.count());
    model.set_runs(resident.pins);
    model.set_replicas(scheduler_.HolderCount(digest));
    model.set_waiting(scheduler_.WaitingFor(digest));
    model.set_idle_ns(Since(resident.last_use, now));
  }
  ShowStates(index, [&status](const StateShown& state) {
    auto& shown = *status.add_models();
    shown.set_digest(node::DigestOf(state.model));
    shown.add_functions(state.function);
    shown.set_state("state");
    shown.set_bytes(state.bytes.count());
  });
  for (const auto& digest : scheduler_.EvictingOn(index)) {
    auto& model = *status.add_models();
    model.set_digest(node::DigestOf(digest));
    ShowFunction(digest, *model.mutable_functions());
    model.set_state("evicting");
  }
}

void NodeController::ShowWork(std::uint32_t index, proto::GpuStatus& status) {
  const auto now = Now(this);
  for (const auto& [id, held] : requests_) {
    if (held.serial == 0 || held.gpu != index) continue;
    auto& run = *status.add_runs();
    run.set_function(held.message.function().name());
    run.set_age_ns(Since(held.dispatched, now));
    run.set_attempt(held.attempt);
    run.set_hit(held.was == ModelWas::kResident);
  }
  for (auto& record : swaps_.Latest(index, now)) {
    ShowFunction(record.digest(), *record.mutable_functions());
    record.set_digest(node::DigestOf(record.digest()));
    for (auto& evicted : *record.mutable_evicted()) evicted = node::DigestOf(evicted);
    *status.add_swaps() = std::move(record);
  }
}

// Of at least half a second: who asks more often is told the same again.
void NodeController::ShowShares(std::uint32_t index, const proto::WorkerDescription& worker,
                                proto::GpuStatus& status) {
  auto& seen = gpus_[index].seen;
  const auto now = Now(this);
  const auto link_ns = worker.copy_in_busy_ns();
  const auto share = [&](std::int64_t ns, std::int64_t before) {
    // A new worker counts from zero again.
    return std::clamp(
        static_cast<double>(ns >= before ? ns - before : ns) / static_cast<double>(Since(seen.at, now)), 0.0,
        1.0);
  };
  if (Since(seen.at, now) >= Duration(std::chrono::milliseconds(500)).count()) {
    seen.busy_share = share(worker.busy_ns(), seen.busy_ns);
    seen.link_share = share(link_ns, seen.link_ns);
    seen.at = now;
    seen.busy_ns = worker.busy_ns();
    seen.link_ns = link_ns;
  }
  status.set_busy_share(std::min(1.0, status.busy_share() + seen.busy_share));
  status.set_link_share(std::min(1.0, status.link_share() + seen.link_share));
}

void NodeController::ShowRegion(proto::HostRegionStatus& region) {
  const auto now = Now(this);
  region.set_node(options_.name);
  region.set_bytes(copies_.region().count());
  region.set_used_bytes(copies_.used().count());
  region.set_loads(copies_.counts().loads);
  region.set_drops(copies_.counts().drops);
  region.set_damaged(copies_.counts().damaged);
  for (const auto& [digest, entry] : copies_.entries()) {
    auto& model = *region.add_models();
    model.set_digest(node::DigestOf(digest));
    ShowFunction(digest, *model.mutable_functions());
    model.set_state(node::Name(entry.state));
    model.set_bytes(entry.bytes.count());
    model.set_readers(entry.readers);
    model.set_idle_ns(Since(entry.last_use, now));
    if (!entry.last_error.ok()) model.set_problem(std::string(entry.last_error.message()));
  }
  ShowStates(node::kNoGpu, [&region](const StateShown& state) {
    auto& shown = *region.add_models();
    shown.set_digest(node::DigestOf(state.model));
    shown.add_functions(state.function);
    shown.set_state("state");
    shown.set_bytes(state.bytes.count());
  });
}

}  // namespace troupe::actors
