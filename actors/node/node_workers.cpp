// The node controller: executors, and what the rest of the cluster is told of this node.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "actors/node/node_controller_actor.hpp"

namespace troupe::actors {

void NodeController::StartExecutors() {
  for (std::uint32_t i = 0; i < options_.gpus.size(); ++i) {
    scheduler_.AddGpu(i, options_.gpus[i].memory);
    HeldGpu gpu;
    gpu.last.set_gpu(i);
    gpu.executor = SpawnExecutor(system(), i, options_.make_link(i), caf::actor_cast<ExecutorListener>(this),
                                 options_.executor);
    gpus_.push_back(std::move(gpu));
  }
  UpdateCapacity();
}

void NodeController::Executor(const proto::ExecutorReport& report) {
  if (report.gpu() >= gpus_.size()) return;
  gpus_[report.gpu()].last = report;
  if (report.state() != proto::ExecutorReport::STARTING && report.state() != proto::ExecutorReport::READY)
    Met(report.gpu());
  Tell(report);
  const auto now = Now(this);
  switch (report.state()) {
    case proto::ExecutorReport::READY:
      return WorkerUp(report, now);
    case proto::ExecutorReport::DOWN:
      StatesLost(report.gpu());
      VoidDispatches(report.gpu());
      BorrowerLost(report.gpu());
      ForgetPlans(report.gpu());
      return Handle(scheduler_.Apply(node::WorkerLost{report.gpu(), report.reason()}, now));
    case proto::ExecutorReport::UNFIT:
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
  const auto state = proto::ExecutorReport::State_Name(report.state());
  auto text = absl::StrCat("GPU ", report.gpu(), ", worker ", report.incarnation());
  if (report.down_ns() > 0)
    absl::StrAppend(&text, ", back after ", FormatDuration(Duration(report.down_ns())));
  if (!report.reason().empty()) absl::StrAppend(&text, ": ", report.reason());
  const auto kind = absl::StrCat("worker-", absl::AsciiStrToLower(state));
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
  for (const auto& resident : report.worker().resident()) {
    const auto digest = models_.ByPackedDigest(resident.digest());
    if (!digest.empty()) ready.resident.push_back({digest, Bytes(resident.bytes())});
  }
  for (const auto& resident : ready.resident) RecoverStates(report.gpu(), resident.model);
  Met(report.gpu());
  Handle(scheduler_.Apply(ready, now));
  ForgetPlans(report.gpu());
  std::vector<std::string> placed;
  models_.ForEach([&](const std::string& digest, const HeldModel&) {
    if (copies_.Usable(digest)) placed.push_back(digest);
  });
  for (const auto& digest : placed) Prepare(report.gpu(), digest);
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
  for (const auto& gpu : gpus_) fit += gpu.last.state() != proto::ExecutorReport::UNFIT;
  routers_.ledger().SetCapacity(scheduler_.draining() ? 0 : fit * options_.credits_per_gpu);
  GrantAll();
}

void NodeController::Kill(std::uint32_t gpu) {
  if (gpu >= gpus_.size()) return;
  proto::KillWorker kill;
  kill.set_reason("an operator asked for it");
  send(gpus_[gpu].executor, std::move(kill));
}

proto::DrainReply NodeController::Drain(bool drain) {
  scheduler_.SetDraining(drain);
  UpdateCapacity();
  return {};
}

void NodeController::Joined(const proto::MemberJoined& joined) {
  LearnFunctions(joined.state());
  epoch_ = joined.epoch();
  GrantAll();
}

proto::MemberReport NodeController::Report(const proto::DescribeMember& ask) {
  proto::MemberReport report;
  for (std::uint32_t i = 0; i < gpus_.size(); ++i) *report.add_gpus() = Record(i);
  *report.mutable_load() = Load();
  if (!ask.joining()) {
    for (auto& event : journal_.After(ask.events_heard(), Now(this))) *report.add_events() = std::move(event);
    return report;
  }
  models_.ForEach([&](const std::string& digest, const HeldModel& model) {
    if (model.adopted) report.add_adopted(digest);
  });
  return report;
}

proto::GpuRecord NodeController::Record(std::uint32_t index) const {
  proto::GpuRecord record;
  record.set_index(index);
  record.set_device(options_.gpus[index].device);
  record.set_memory_bytes(options_.gpus[index].memory.count());
  record.set_state(absl::AsciiStrToLower(proto::ExecutorReport::State_Name(gpus_[index].last.state())));
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
  for (const auto& model : scheduler_.AdoptedModels()) gathered->add_adopted(model);
  auto open = std::make_shared<std::size_t>(gpus_.size());
  for (std::uint32_t i = 0; i < gpus_.size(); ++i) {
    auto* status = gathered->add_gpus();
    status->set_node(options_.name);
    *status->mutable_gpu() = Record(i);
    status->set_restarts(gpus_[i].last.restarts());
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
          auto& status = *gathered->mutable_gpus(static_cast<int>(i));
          if (outcome.ok()) AddWorker(*outcome, status);
          if (outcome.ok()) ShowShares(i, status);
          if (--*open == 0) promise.deliver(*gathered);
        });
  }
  return promise;
}

void NodeController::AddWorker(const proto::WorkerOutcome& outcome, proto::GpuStatus& status) const {
  *status.mutable_worker() = outcome.description();
  // The worker knows models by their packed digests; people and the registry by the canonical ones.
  for (auto& resident : *status.mutable_worker()->mutable_resident()) {
    const auto digest = models_.ByPackedDigest(resident.digest());
    if (!digest.empty()) resident.set_digest(digest);
  }
}

}  // namespace troupe::actors
