#include "node/runtimes/runtimes.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/printable.hpp"
#include "node/parts.hpp"
#include "node/runtimes/isolation.hpp"
#include "node/runtimes/worker_orders.hpp"

namespace troupe::node {

namespace {

std::string KeyName(bool assigned, const std::string& key) {
  if (!assigned) return "no key";
  return key.empty() ? "shared functions" : key;
}

}  // namespace

Runtimes::Runtimes(Parts& parts) : parts_(parts) {
  const auto& settings = parts_.settings;
  const auto each = settings.isolation.runtimes;
  runtimes_.resize(settings.gpus.size() * each);
  for (GpuIndex gpu = 0; gpu < runtimes_.size(); ++gpu) {
    const auto device = settings.DeviceOf(gpu);
    parts_.scheduler.AddRuntime(gpu, Bytes(settings.gpus[device].memory.count() / each), device,
                                parts_.kinds.OfDevice(device));
    runtimes_[gpu].last.set_gpu(gpu);
  }
}

std::string Runtimes::StateName(proto::ExecutorReport::State state) {
  return absl::AsciiStrToLower(proto::ExecutorReport::State_Name(state));
}

bool Runtimes::Serves(GpuIndex gpu, const ModelNumber& copy) const {
  const auto& runtime = parts_.scheduler.gpus().at(gpu);
  return Up(gpu) && runtime.assigned && runtime.key == copy->key;
}

std::optional<Bytes> Runtimes::TakeOrphan(GpuIndex gpu, const std::string& packed) {
  auto& residents = Residents(gpu);
  const auto it = std::find_if(residents.begin(), residents.end(),
                               [&](const auto& resident) { return resident.digest() == packed; });
  if (it == residents.end()) return std::nullopt;
  const Bytes bytes(it->bytes());
  residents.erase(it);  // true only until the scheduler decides otherwise
  return bytes;
}

void Runtimes::On(const WorkerReported& event) {
  const auto& report = event.report;
  parts_.routers.ResidencyChanged();
  if (report.gpu() >= runtimes_.size()) return;
  auto& runtime = runtimes_[report.gpu()];
  const bool given_up = runtime.last.state() == proto::ExecutorReport::UNFIT;
  const bool first = !runtime.was_up && report.state() == proto::ExecutorReport::READY;
  runtime.last = report;
  runtime.was_up |= first;
  if (given_up || first) parts_.routers.UpdateCapacity();
  // A runtime that starts, or is down, holds no state from before; a runtime that is ready is asked first.
  if (report.state() != proto::ExecutorReport::READY) parts_.states.Met(report.gpu());
  Tell(report);
  if (report.state() == proto::ExecutorReport::STARTING) return Starting(report);
  runtime.coming.reset();
  if (report.state() == proto::ExecutorReport::READY) return WorkerUp(report);
  if (report.state() == proto::ExecutorReport::DOWN)
    return parts_.Hear(RuntimeLost{.gpu = report.gpu(), .why = report.reason()});
  if (report.state() != proto::ExecutorReport::UNFIT) return;
  parts_.Hear(RuntimeLost{.gpu = report.gpu(), .why = report.reason(), .unfit = true});
  parts_.routers.UpdateCapacity();
}

void Runtimes::Tell(const proto::ExecutorReport& report) {
  auto text = absl::StrCat(parts_.settings.Label(report.gpu()), ", worker ", report.incarnation());
  if (report.down_ns() > 0)
    absl::StrAppend(&text, ", back after ", FormatDuration(Duration(report.down_ns())));
  if (!report.reason().empty()) absl::StrAppend(&text, ": ", report.reason());
  const auto kind = absl::StrCat("worker-", StateName(report.state()));
  // A start is told of when it has led to something.
  if (report.state() == proto::ExecutorReport::STARTING) return parts_.out.Add(Log{kind, text});
  parts_.out.Note(kind, text);
}

// What the worker before this one left. The worker's sentences are cut and made printable: it may be of any sort.
void Runtimes::TellKept(GpuIndex gpu, const proto::KeptWeights& kept) {
  constexpr int kSentences = 8;
  constexpr std::size_t kLongest = 256;
  const auto label = parts_.settings.Label(gpu);
  if (kept.models() > 0) {
    parts_.out.Note("weights-kept",
                    absl::StrCat(label, ": ", kept.models(), " models, ", FormatBytes(Bytes(kept.bytes())),
                                 ", which the worker before this one left"));
  }
  if (kept.dropped() == 0) return;
  auto text = absl::StrCat(label, ": ", kept.dropped(), " of what the worker before this one left:");
  for (int i = 0; i < std::min(kept.reasons_size(), kSentences); ++i)
    absl::StrAppend(&text, i == 0 ? " " : "; ", PrintableAscii(kept.reasons(i), kLongest));
  parts_.out.Note("weights-dropped", text);
}

// What a worker that died wrote down of a model's size is not to be trusted; the next one tells it unchecked.
Bytes Runtimes::BytesOf(const ModelNumber& copy, const proto::ResidentModel& resident,
                        const proto::WorkerDescription& worker) const {
  const Bytes told(resident.bytes());
  const auto* model = parts_.models.Find(copy);
  const bool kept = worker.kept().models() > 0 && model != nullptr && model->copy.has_weights();
  return kept ? std::min(told, Bytes(model->copy.weights().length())) : told;
}

void Runtimes::WorkerUp(const proto::ExecutorReport& report) {
  const auto gpu = report.gpu();
  const auto& worker = report.worker();
  runtimes_[gpu].takes_input_parts = worker.input_parts();
  WorkerReady ready{gpu, Bytes(worker.memory_bytes()), Bytes(worker.free_bytes()), {}, worker.peer_copies()};
  const auto serves = ParseRuntimeName(worker.isolation_key(), parts_.settings.scheduler.isolated);
  if (!serves.ok()) {
    const auto why = std::string(serves.status().message());
    parts_.out.Note("worker-refused", absl::StrCat(parts_.settings.Label(gpu), ": ", why));
    return parts_.out.Add(KillRuntime{gpu, why});
  }
  TellKept(gpu, worker.kept());
  ready.broadcasts = worker.broadcasts();
  ready.assigned = serves->assigned;
  ready.key = serves->key;
  for (const auto& resident : worker.resident()) {
    const auto copy = parts_.models.held().ByPackedDigest(resident.digest(), serves->key);
    if (copy) ready.resident.push_back({copy, BytesOf(copy, resident, worker)});
  }
  ready.strange = parts_.orphans.WorkerUp(gpu, serves->key);
  ready.found_states =
      parts_.settings.state_write_back == StateWriteBack::kEvict && worker.resident_size() > 0;
  for (const auto& resident : ready.resident) parts_.states.RecoverAll(gpu, resident.model);
  parts_.states.Met(gpu);
  parts_.decisions.CarryOut(parts_.scheduler.Apply(ready, parts_.out.now()));
  parts_.preparation.WorkerUp(gpu);
}

void Runtimes::Reassign(const Assignment& order) {
  auto& runtime = runtimes_[order.gpu];
  const auto to = KeyName(order.assigned, order.key);
  const auto label = parts_.settings.Label(order.gpu);
  if (order.fresh) {
    parts_.out.Note("runtime-reclaimed",
                    absl::StrCat(label, ": from ", KeyName(true, order.from), ", for ", to));
  } else {
    parts_.out.Note("runtime-assigned", absl::StrCat(label, ": to ", to));
  }
  parts_.Hear(RuntimeReassigned{order.gpu});
  proto::AssignWorker assign;
  assign.set_isolation_key(RuntimeName({order.assigned, order.key}, parts_.settings.scheduler.isolated));
  assign.set_fresh(order.fresh);
  assign.set_incarnation(runtime.last.incarnation());
  runtime.coming = assign.isolation_key();
  runtime.last.set_state(proto::ExecutorReport::STARTING);
  runtime.last.clear_worker();
  parts_.out.Add(AssignRuntime{order.gpu, std::move(assign)});
}

// A worker is being started. If not for what was ordered, that one has died, and others may be sought.
void Runtimes::Starting(const proto::ExecutorReport& report) {
  auto& coming = runtimes_[report.gpu()].coming;
  if (!coming || *coming == report.worker().isolation_key()) return;
  coming.reset();
  parts_.decisions.On(RuntimeLost{.gpu = report.gpu(), .why = report.reason()});
}

bool Runtimes::Works(std::uint32_t device) const {
  const auto each = parts_.settings.isolation.runtimes;
  const auto first = runtimes_.begin() + device * each;
  return std::any_of(first, first + each, [](const Runtime& runtime) {
    return runtime.was_up && runtime.last.state() != proto::ExecutorReport::UNFIT;
  });
}

void Runtimes::ArmGiveBack() {
  const auto idle = parts_.settings.isolation.idle;
  // One whose answers were not read yet stays beyond its time: not looked at all the time for that.
  const Duration pause = std::min<Duration>(idle / 4, std::chrono::seconds(1));
  auto due = parts_.scheduler.NextIdle(idle);
  if (due == Time::max()) return;
  due = std::max(due, parts_.out.now() + pause);
  if (give_back_.Set(due)) parts_.out.WakeAt(Timer::kGiveBack, due);
}

void Runtimes::OnGiveBackTimer() {
  give_back_.WentOff(parts_.out.now());
  parts_.scheduler.GiveBack(parts_.out.now(), parts_.settings.isolation.idle);
  parts_.decisions.Decide();
}

proto::ExecutorReport::State Runtimes::StateOf(std::uint32_t device) const {
  const auto each = parts_.settings.isolation.runtimes;
  auto state = Last(device * each).state();
  for (auto gpu = device * each; gpu < (device + 1) * each; ++gpu) {
    const auto other = Last(gpu).state();
    if (other == proto::ExecutorReport::READY || state == proto::ExecutorReport::UNFIT) state = other;
    if (state == proto::ExecutorReport::READY) break;
  }
  return state;
}

// A worker that this daemon takes over may be of an earlier release, and not know such inputs.
bool Runtimes::TakesInputParts(std::uint32_t device) const {
  const auto each = parts_.settings.isolation.runtimes;
  for (auto gpu = device * each; gpu < (device + 1) * each; ++gpu)
    if (!runtimes_[gpu].takes_input_parts && Last(gpu).state() != proto::ExecutorReport::UNFIT) return false;
  return true;
}

proto::GpuRecord Runtimes::Record(std::uint32_t device) const {
  proto::GpuRecord record;
  record.set_index(device);
  record.set_device(parts_.settings.gpus[device].device);
  record.set_kind(parts_.settings.gpus[device].kind);
  record.set_memory_bytes(parts_.settings.gpus[device].memory.count());
  record.set_input_parts(TakesInputParts(device));
  const auto state = StateOf(device);
  record.set_state(StateName(state));
  if (state == proto::ExecutorReport::UNFIT)
    record.set_problem(Last(device * parts_.settings.isolation.runtimes).reason());
  return record;
}

// Every worker of the GPU.
void Runtimes::On(const KillAsked& event) {
  for (GpuIndex gpu = 0; gpu < runtimes_.size(); ++gpu)
    if (parts_.settings.DeviceOf(gpu) == event.device)
      parts_.out.Add(KillRuntime{gpu, "an operator asked for it"});
}

// Whether faults are allowed here was asked before: by this node's member, and by the worker of itself. What
// a worker is told to do to itself comes to its executor as any other death or hang would.
void Runtimes::On(const FaultAsked& event) {
  auto status = InjectFault(event);
  parts_.out.Add(Answer<absl::Status>{event.ask, std::move(status)});
}

absl::Status Runtimes::InjectFault(const FaultAsked& event) {
  if (event.device >= parts_.settings.gpus.size())
    return absl::NotFoundError(absl::StrCat("node '", parts_.settings.name, "' has no GPU ", event.device));
  bool any = false;
  for (GpuIndex gpu = 0; gpu < runtimes_.size(); ++gpu) {
    if (parts_.settings.DeviceOf(gpu) != event.device || !Up(gpu)) continue;
    any = true;
    proto::WorkerOrder order;
    order.mutable_fault()->set_kind(event.kind);
    parts_.orders.Give(gpu, std::move(order), FaultOrdered{gpu});
  }
  if (any) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("GPU ", event.device, " of node '", parts_.settings.name,
                                             "' has no worker that is up; try again when it has"));
}

void Runtimes::On(const FaultOrdered& purpose, const proto::WorkerOutcome& outcome) {
  // A killed worker does not answer; its executor says UNAVAILABLE.
  if (outcome.code() != 0 && outcome.code() != static_cast<int>(absl::StatusCode::kUnavailable))
    parts_.out.Note("fault-refused",
                    absl::StrCat(parts_.settings.Label(purpose.gpu), ": ", outcome.message()));
}

}  // namespace troupe::node
