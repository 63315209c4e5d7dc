// The node controller: executors, and what the rest of the cluster is told of this node.
#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "actors/node/node_controller_actor.hpp"

namespace troupe::actors {

std::string NodeController::StateName(proto::ExecutorReport::State state) {
  return absl::AsciiStrToLower(proto::ExecutorReport::State_Name(state));
}

void NodeController::StartExecutors() {
  const auto runtimes = options_.isolation.runtimes;
  for (std::uint32_t i = 0; i < options_.gpus.size() * runtimes; ++i) {
    scheduler_.AddRuntime(i, Bytes(options_.gpus[DeviceOf(i)].memory.count() / runtimes), DeviceOf(i));
    HeldGpu gpu;
    gpu.last.set_gpu(i);
    gpu.executor = SpawnExecutor(system(), i, Label(i), options_.make_link(i),
                                 caf::actor_cast<ExecutorListener>(this), options_.executor);
    link_to(gpu.executor);  // neither is of use without the other
    gpus_.push_back(std::move(gpu));
  }
  UpdateCapacity();
}

void NodeController::Executor(const proto::ExecutorReport& report) {
  ++residency_;
  if (report.gpu() >= gpus_.size()) return;
  const bool given_up = gpus_[report.gpu()].last.state() == proto::ExecutorReport::UNFIT;
  gpus_[report.gpu()].last = report;
  if (given_up) UpdateCapacity();  // an operator has it started again
  // One that starts, or is down, holds no state from before; one that is ready is asked first.
  if (report.state() != proto::ExecutorReport::READY) Met(report.gpu());
  Tell(report);
  const auto now = Now(this);
  if (report.state() == proto::ExecutorReport::STARTING) return Starting(report);
  gpus_[report.gpu()].coming.reset();
  switch (report.state()) {
    case proto::ExecutorReport::READY:
      return WorkerUp(report, now);
    case proto::ExecutorReport::DOWN:
      NoteLost(report.gpu());
      StatesLost(report.gpu());
      VoidDispatches(report.gpu());
      BorrowerLost(report.gpu());
      ForgetPlans(report.gpu());
      return Handle(scheduler_.Apply(node::WorkerLost{report.gpu(), report.reason()}, now));
    case proto::ExecutorReport::UNFIT:
      NoteLost(report.gpu());
      StatesLost(report.gpu());
      VoidDispatches(report.gpu());
      BorrowerLost(report.gpu());
      ForgetPlans(report.gpu());
      Handle(scheduler_.Apply(node::GpuUnfit{report.gpu(), report.reason()}, now));
      return UpdateCapacity();
    default:
      return;
  }
}

void NodeController::Tell(const proto::ExecutorReport& report) {
  auto text = absl::StrCat(Label(report.gpu()), ", worker ", report.incarnation());
  if (report.down_ns() > 0)
    absl::StrAppend(&text, ", back after ", FormatDuration(Duration(report.down_ns())));
  if (!report.reason().empty()) absl::StrAppend(&text, ": ", report.reason());
  const auto kind = absl::StrCat("worker-", StateName(report.state()));
  // A start is told of when it has led to something.
  if (report.state() != proto::ExecutorReport::STARTING) return Note(kind, text);
  if (options_.on_event) options_.on_event(kind, text);
}

void NodeController::Note(const std::string& kind, const std::string& message) {
  journal_.Note(kind, message, Now(this));
  if (options_.on_event) options_.on_event(kind, message);
}

void NodeController::WorkerUp(const proto::ExecutorReport& report, Time now) {
  node::WorkerReady ready{report.gpu(),
                          Bytes(report.worker().memory_bytes()),
                          Bytes(report.worker().free_bytes()),
                          {},
                          report.worker().peer_copies()};
  const auto serves = node::ParseRuntimeName(report.worker().isolation_key(), options_.scheduler.isolated);
  if (!serves.ok()) {
    Note("worker-refused", absl::StrCat(Label(report.gpu()), ": ", serves.status().message()));
    proto::KillWorker kill;
    kill.set_reason(std::string(serves.status().message()));
    return send(gpus_[report.gpu()].executor, std::move(kill));
  }
  ready.broadcasts = report.worker().broadcasts();
  ready.assigned = serves->assigned;
  ready.key = serves->key;
  for (const auto& resident : report.worker().resident()) {
    const auto digest = models_.ByPackedDigest(resident.digest(), serves->key);
    if (!digest.empty()) ready.resident.push_back({digest, Bytes(resident.bytes())});
  }
  ready.strange = KeepStrangers(report.gpu(), serves->key);
  for (const auto& resident : ready.resident) RecoverStates(report.gpu(), resident.model);
  Met(report.gpu());
  Handle(scheduler_.Apply(ready, now));
  ForgetPlans(report.gpu());
  std::vector<std::string> placed;
  models_.ForEach([&](const std::string& digest, const HeldModel&) {
    if (copies_.Usable(digest)) placed.push_back(digest);
  });
  for (const auto& digest : placed) {
    if (!Prepare(report.gpu(), digest)) continue;
    if (models_.Find(digest)->adopted && options_.scheduler.isolated) AwaitTrial(digest);
  }
}

void NodeController::SaveProfiles() {
  if (!options_.save_profiles || scheduler_.costs().revision() == saved_costs_) return;
  saved_costs_ = scheduler_.costs().revision();
  options_.save_profiles(node::ExportProfiles(scheduler_));
}

// Outcomes of the lost worker's orders come right behind the report; the scheduler has planned anew by then.
void NodeController::VoidDispatches(node::GpuIndex gpu) {
  for (auto& [id, held] : requests_)
    if (held.gpu == gpu) held.serial = 0;
  unread_.ForgetGpu(gpu);
  gpus_[gpu].writing = 0;
  for (const auto& start : std::exchange(gpus_[gpu].behind, {})) start();  // of nothing any more
}

void NodeController::UpdateCapacity() {
  std::uint64_t fit = 0;
  // A GPU's places are the same, however many runtimes share them.
  for (std::uint32_t device = 0; device < options_.gpus.size(); ++device)
    fit += Record(device).state() != StateName(proto::ExecutorReport::UNFIT);
  routers_.ledger().SetCapacity(scheduler_.draining() ? 0 : fit * options_.credits_per_gpu);
  GrantAll();
}

// Every worker of the GPU.
void NodeController::Kill(std::uint32_t device) {
  for (node::GpuIndex gpu = 0; gpu < gpus_.size(); ++gpu) {
    if (DeviceOf(gpu) != device) continue;
    proto::KillWorker kill;
    kill.set_reason("an operator asked for it");
    send(gpus_[gpu].executor, std::move(kill));
  }
}

proto::DrainReply NodeController::Drain(bool drain) {
  scheduler_.SetDraining(drain);
  UpdateCapacity();
  return {};
}

void NodeController::Joined(const proto::MemberJoined& joined) {
  Learn(joined.state());
  epoch_ = joined.epoch();
  routers_.TellAll();
  StopRemembering();
  ArmSaveAdopted();
  GrantAll();
}

proto::MemberReport NodeController::Report(const proto::DescribeMember& ask) {
  if (ask.joining()) session_.AskedBy(current_sender());
  proto::MemberReport report;
  for (std::uint32_t i = 0; i < options_.gpus.size(); ++i) {
    auto& record = *report.add_gpus();
    record = Record(i);
    // What one model can have: whoever places models goes by this.
    record.set_memory_bytes(record.memory_bytes() / options_.isolation.runtimes);
  }
  *report.mutable_load() = Load();
  if (!ask.joining()) {
    *report.mutable_demand() = demand_.Take();
    for (auto& event : journal_.After(ask.events_heard(), Now(this))) *report.add_events() = std::move(event);
    return report;
  }
  std::set<std::string> adopted;
  models_.ForEach([&](const std::string& copy, const HeldModel& model) {
    if (model.adopted) adopted.insert(node::DigestOf(copy));
  });
  for (const auto& digest : adopted) report.add_adopted(digest);
  told_ = std::move(adopted);
  return report;
}

// Ready while one of its runtimes is, unfit when all are.
proto::GpuRecord NodeController::Record(std::uint32_t device) const {
  proto::GpuRecord record;
  record.set_index(device);
  record.set_device(options_.gpus[device].device);
  record.set_memory_bytes(options_.gpus[device].memory.count());
  const auto first = device * options_.isolation.runtimes;
  auto state = gpus_[first].last.state();
  for (auto gpu = first; gpu < first + options_.isolation.runtimes; ++gpu) {
    const auto other = gpus_[gpu].last.state();
    if (other == proto::ExecutorReport::READY || state == proto::ExecutorReport::UNFIT) state = other;
    if (state == proto::ExecutorReport::READY) break;
  }
  record.set_state(StateName(state));
  if (state == proto::ExecutorReport::UNFIT) record.set_problem(gpus_[first].last.reason());
  return record;
}

proto::NodeLoad NodeController::Load() const {
  const auto& counts = scheduler_.counts();
  proto::NodeLoad load;
  load.set_queued(scheduler_.waiting() + inputs_.pending());
  // A trial is nobody's request; it hardly ever waits.
  load.set_running(scheduler_.in_flight() - std::min(scheduler_.in_flight(), scheduler_.trials()));
  load.set_served(counts.served);
  load.set_failed(counts.failed);
  load.set_swaps(counts.swaps);
  load.set_hits(counts.hits);
  load.set_retried(counts.retried);
  return load;
}

caf::typed_response_promise<proto::NodeDescription> NodeController::Describe() {
  auto promise = make_response_promise<proto::NodeDescription>();
  auto gathered = std::make_shared<proto::NodeDescription>();
  gathered->set_node(options_.name);
  *gathered->mutable_load() = Load();
  *gathered->mutable_adopted() = served_.list();
  auto open = std::make_shared<std::size_t>(gpus_.size());
  for (std::uint32_t i = 0; i < options_.gpus.size(); ++i) {
    auto* status = gathered->add_gpus();
    status->set_node(options_.name);
    *status->mutable_gpu() = Record(i);
  }
  for (std::uint32_t i = 0; i < gpus_.size(); ++i) {
    auto& status = *gathered->mutable_gpus(static_cast<int>(DeviceOf(i)));
    status.set_restarts(status.restarts() + gpus_[i].last.restarts());
  }
  Show(*gathered);
  if (gpus_.empty()) promise.deliver(*gathered);
  for (std::uint32_t i = 0; i < gpus_.size(); ++i) {
    proto::WorkerOrder order;
    order.mutable_describe();
    order.set_sequence(next_sequence_++);
    Call<proto::WorkerOutcome>(
        this, calls_, gpus_[i].executor, options_.describe_timeout, std::move(order),
        [this, promise, gathered, open, i](absl::StatusOr<proto::WorkerOutcome> outcome) mutable {
          auto& status = *gathered->mutable_gpus(static_cast<int>(DeviceOf(i)));
          if (outcome.ok()) AddWorker(i, *outcome, status);
          if (--*open == 0) promise.deliver(*gathered);
        });
  }
  return promise;
}

// Those of one GPU add up.
void NodeController::AddWorker(node::GpuIndex gpu, proto::WorkerOutcome& outcome, proto::GpuStatus& status) {
  auto& worker = *outcome.mutable_description();
  // The worker knows models by their packed digests; people and the registry by the canonical ones.
  for (auto& resident : *worker.mutable_resident()) {
    const auto copy = models_.ByPackedDigest(resident.digest(), scheduler_.gpus().at(gpu).key);
    if (!copy.empty()) resident.set_digest(node::DigestOf(copy));
  }
  ShowShares(gpu, worker, status);
  if (!status.has_worker()) {
    *status.mutable_worker() = std::move(worker);
    return;
  }
  auto& sum = *status.mutable_worker();
  sum.set_memory_bytes(sum.memory_bytes() + worker.memory_bytes());
  sum.set_free_bytes(sum.free_bytes() + worker.free_bytes());
  sum.set_largest_free_bytes(std::max(sum.largest_free_bytes(), worker.largest_free_bytes()));
  sum.mutable_resident()->MergeFrom(worker.resident());
  sum.mutable_prepared()->MergeFrom(worker.prepared());
  sum.set_runs(sum.runs() + worker.runs());
  sum.set_swaps(sum.swaps() + worker.swaps());
  sum.set_busy_ns(sum.busy_ns() + worker.busy_ns());
  sum.set_copy_in_bytes(sum.copy_in_bytes() + worker.copy_in_bytes());
  sum.set_copy_out_bytes(sum.copy_out_bytes() + worker.copy_out_bytes());
  sum.set_copy_in_busy_ns(sum.copy_in_busy_ns() + worker.copy_in_busy_ns());
  sum.set_copy_out_busy_ns(sum.copy_out_busy_ns() + worker.copy_out_busy_ns());
  sum.set_pool_bytes(sum.pool_bytes() + worker.pool_bytes());
  sum.set_pool_used_bytes(sum.pool_used_bytes() + worker.pool_used_bytes());
  sum.set_pool_peak_bytes(sum.pool_peak_bytes() + worker.pool_peak_bytes());
  sum.set_fragmentation(std::max(sum.fragmentation(), worker.fragmentation()));
}

}  // namespace troupe::actors
