#include "gpu/worker/runner.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

using transport::SteadyNow;

Runner::Runner(DeviceMemory& memory, TaskQueue& queue, Lanes lanes, const WorkerLimits& limits,
               DeviceLinks& links, Residency& residency, Preparer& preparer)
    : memory_(memory),
      queue_(queue),
      lanes_(lanes),
      limits_(limits),
      sharing_(FindLinkSharing(links.options().sharing).value_or(LinkSharing::kDeadline)),
      links_(links),
      residency_(residency),
      preparer_(preparer),
      needs_(limits.plans),
      shares_(memory.device().info().shares),
      in_(memory.device().MakeStream()),
      slots_(memory.device().info().concurrency),
      out_(memory.device().MakeStream()) {
  for (Slot& slot : slots_) slot.stream = memory.device().MakeStream();
}

Runner::~Runner() {
  // The streams first: what they still do uses the runs' memory. What computes may wait for groups that come
  // in.
  for (const auto& [id, run] : runs_) {
    if (run->layers != nullptr) run->layers->Stop(absl::CancelledError("the worker ends"));
  }
  in_.reset();
  for (Slot& slot : slots_) slot.stream.reset();
  out_.reset();
  links_.Close();
}

Run* Runner::Find(Id id) {
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : found->second.get();
}

std::unique_ptr<Run> Runner::Take(Id id) {
  std::unique_ptr<Run> run = std::move(runs_.extract(id).mapped());
  const auto found = by_sequence_.find(run->request.sequence);
  if (found != by_sequence_.end() && found->second == id) by_sequence_.erase(found);
  LeaveTurn(id, *run);
  layered_ -= run->by_layer ? 1 : 0;
  return run;
}

void Runner::Submit(RunRequest request, Reply reply) {
  if (waiting_.size() >= limits_.waiting_runs) {
    reply.Fail(
        absl::ResourceExhaustedError(absl::StrCat(waiting_.size(), " runs wait at this worker already")));
    return;
  }
  const Id id = next_++;
  if (!by_sequence_.emplace(request.sequence, id).second) {
    reply.Fail(
        absl::InvalidArgumentError(absl::StrCat("sequence ", request.sequence, " is that of another run")));
    return;
  }
  Run& run = *runs_.emplace(id, std::make_unique<Run>(std::move(request), std::move(reply))).first->second;
  run.urgency = UrgencyOf(sharing_, run.request.received, run.request.deadline);
  waiting_.Add(id, run.request.order.priority(), run.urgency, run.Expires());
  if (const absl::Status status = Accept(id, run); !status.ok()) {
    GiveUp(id, status);
    return;
  }
  Advance();
}

absl::Status Runner::Accept(Id id, Run& run) {
  const std::string& digest = run.request.order.digest();
  if (residency_.table().StateOf(digest) == ModelTable::State::kAbsent && run.request.order.by_layer()) {
    TROUPE_RETURN_IF_ERROR(AcceptByLayer(run));
  } else if (residency_.table().StateOf(digest) == ModelTable::State::kAbsent) {
    return absl::NotFoundError(absl::StrCat("model ", digest, " is not on this device: swap it in first"));
  }
  if (run.request.deadline) residency_.Hurry(digest, *run.request.deadline);
  TROUPE_RETURN_IF_ERROR(TakeTurn(id, run));
  TROUPE_RETURN_IF_ERROR(FindPlan(id, run));
  if (Find(id) != nullptr) FetchInputs(id, run);  // preparation may have been refused, and the run with it
  return absl::OkStatus();
}

absl::Status Runner::FindPlan(Id id, Run& run) {
  const proto::RunOrder& order = run.request.order;
  const std::string key = PlanKeyOf(order.digest(), InputSpecs(run), order.precision());
  run.plan = preparer_.Find(key);
  if (run.plan != nullptr) return absl::OkStatus();
  const auto here = [this, id](const absl::StatusOr<std::shared_ptr<DevicePlan>>& plan) {
    PlanHere(id, plan);
  };
  run.preparing = preparer_.Preparing(key) || run.request.host.has_value();
  if (preparer_.Preparing(key)) {
    preparer_.Await(key, here);
  } else if (run.request.host) {
    preparer_.Prepare(run.request.sequence, *run.request.host, InputSpecs(run), order.precision(), here);
  } else {
    return absl::FailedPreconditionError(absl::StrCat(
        "model ", order.digest(),
        " is not prepared for these input shapes and this precision: prepare it, or name its host "
        "copy in the order"));
  }
  return absl::OkStatus();
}

void Runner::PlanHere(Id id, const absl::StatusOr<std::shared_ptr<DevicePlan>>& plan) {
  Run* run = Find(id);
  if (run == nullptr) return;
  run->preparing = false;
  if (!run->failed.ok() || !plan.ok()) {
    GiveUp(id, absl::Status(run->failed.ok() ? plan.status() : run->failed));
    return;
  }
  run->plan = *plan;
  Advance();
}

Runner::Model Runner::ModelOf(const Run& run) const {
  if (run.by_layer) return Model::kComing;
  const std::string& digest = run.request.order.digest();
  switch (residency_.table().StateOf(digest)) {
    case ModelTable::State::kAbsent:
      return Model::kAway;
    case ModelTable::State::kLoading:
      return residency_.Pipelined(digest) != nullptr ? Model::kComing : Model::kAway;
    case ModelTable::State::kResident:
    case ModelTable::State::kRunning:
      return Model::kHere;
  }
  return Model::kAway;
}

std::optional<Runner::Id> Runner::NextToStage(Model model) const {
  return waiting_.First(SteadyNow(), [&](Id id) {
    const Run& run = *runs_.at(id);
    return run.plan != nullptr && run.inputs_here && ModelOf(run) == model && HasTurn(id, run) &&
           StagedOf(run, model == Model::kComing) < limits_.staged_runs;
  });
}

// Not re-entered: what it starts may end at once and call back. Runs whose models are on their way have slots
// of their own, so that they never keep a run that could compute now from being staged.
void Runner::Advance() {
  again_ = true;
  if (std::exchange(advancing_, true)) return;
  while (std::exchange(again_, false)) {
    StageSome(Model::kHere, staged_);
    if (residency_.table().loading() + layered_ > 0) StageSome(Model::kComing, staged_ahead_);
    LaunchSome();
  }
  advancing_ = false;
}

void Runner::StageSome(Model model, const std::size_t& staged) {
  while (staged < limits_.staged_runs * slots_.size()) {
    const auto next = NextToStage(model);
    if (!next || !Stage(*next)) break;
  }
}

// False when the run has to wait for device memory that other runs hold.
bool Runner::Stage(Id id) {
  Run& run = *Find(id);
  const std::string& digest = run.request.order.digest();
  const Bytes weights =
      run.by_layer ? Bytes(run.request.host->weights.size()) : residency_.table().SizeOf(digest);
  if (run.plan->weights_bytes() > weights) {
    GiveUp(id, absl::FailedPreconditionError(absl::StrCat(
                   "model ", digest, " was prepared with ", run.plan->weights_bytes().count(),
                   " bytes of weights, ", run.by_layer ? "its host copy has " : "on the device are ",
                   weights.count())));
    return true;
  }
  if (const absl::Status taken = TakeMemory(run); !taken.ok()) {
    if (on_device_ > 0 || (ModelOf(run) == Model::kComing && !run.by_layer)) return false;
    GiveUp(id, taken, NoFitOutcome(memory_));
    return true;
  }
  if (const absl::Status reserved = ReserveOutputs(run, limits_.inline_outputs); !reserved.ok()) {
    FreeBlock(run);
    Promise();
    GiveUp(id, reserved);
    return true;
  }
  if (run.by_layer) {
    BeginLayers(id, run);
  } else {
    run.model = residency_.table().Acquire(digest);
    run.arguments.weights = run.model->weights;
    run.load = residency_.Pipelined(digest);
  }
  run.stage = Run::Stage::kStaging;
  ++on_device_;
  EnterStaging(run);
  waiting_.Remove(id);
  CopyInputs(id, run);
  return true;
}

void Runner::Staged(Id id, const absl::Status& status) {
  Run& run = *Find(id);
  run.copy_in = SteadyNow() - run.copy_in_begin;
  run.stage = Run::Stage::kReady;
  if (run.failed.ok()) run.failed = status;
  if (!run.failed.ok()) {
    GiveUp(id, absl::Status(run.failed));
    return;
  }
  ready_.Add(id, run.request.order.priority(), run.urgency, run.Expires());
  Advance();
}

void Runner::Left(Id id, const absl::Status& status) {
  if (Run& done = *Find(id); status.ok() && done.state != nullptr && !done.unheard) done.state->Commit();
  std::unique_ptr<Run> run = Take(id);
  FreeDevice(*run);
  ++runs_done_;
  proto::WorkerOutcome outcome;
  if (status.ok()) outcome = OutcomeOf(*run, SteadyNow());
  // Tells a run that was cut from a run that never began.
  if (run->cut_after > Duration::zero()) outcome.mutable_run()->set_compute_ns(run->cut_after.count());
  Answer(std::move(run), status, std::move(outcome));
  Advance();  // a run may wait for the memory
}

void Runner::ReleaseModel(Run& run) {
  if (run.model) residency_.Release(run.request.order.digest(), *std::exchange(run.model, std::nullopt));
}

void Runner::FreeDevice(Run& run) {
  ReleaseModel(run);
  FreeActivations(run);
  FreeBlock(run);
  --on_device_;
}

void Runner::GiveUp(Id id, const absl::Status& status, proto::WorkerOutcome outcome) {
  Run& run = *Find(id);
  if (run.stage == Run::Stage::kStaging || run.preparing) {
    // Its inputs are on their way, or its plan is being made from the host copy, which may leave the region
    // with the answer: answered then.
    run.failed = status;
    return;
  }
  if (run.stage == Run::Stage::kComputing || run.stage == Run::Stage::kLeaving) return;
  if (LayersComing(run, status)) {
    ready_.Remove(id);  // answered when nothing reads its host copy any more
    return;
  }
  std::unique_ptr<Run> taken = Take(id);
  if (taken->stage == Run::Stage::kReady) {
    ready_.Remove(id);
    LeaveStaging(*taken);
    FreeDevice(*taken);
  } else {
    waiting_.Remove(id);
  }
  Answer(std::move(taken), status, std::move(outcome));
  Advance();
}

// The node, which plans the memory of this device, must not hear of a run before it hears what became of its
// model.
void Runner::Answer(std::unique_ptr<Run> run, absl::Status status, proto::WorkerOutcome outcome) {
  const std::string digest = run->request.order.digest();
  if (residency_.table().StateOf(digest) != ModelTable::State::kLoading) {
    return status.ok() ? run->reply.Done(std::move(outcome)) : run->reply.Fail(status, std::move(outcome));
  }
  residency_.Defer(digest, [run = std::shared_ptr<Run>(std::move(run)), status = std::move(status),
                            outcome = std::move(outcome)] {
    status.ok() ? run->reply.Done(outcome) : run->reply.Fail(status, outcome);
  });
}

void Runner::Cancel(std::uint64_t sequence) {
  const auto found = by_sequence_.find(sequence);
  if (found == by_sequence_.end()) return;
  GiveUp(found->second, absl::CancelledError("the request of this run was cancelled"));
}

void Runner::Expire(Time now) {
  for (RunQueue* queue : {&waiting_, &ready_}) {
    if (queue->NextExpiry() > now) continue;
    for (const Id id : queue->TakeExpired(now)) {
      GiveUp(id, absl::DeadlineExceededError("the run did not begin within its timeout"));
    }
  }
}

Time Runner::NextExpiry() const {
  return std::min(waiting_.NextExpiry(), ready_.NextExpiry());
}

void Runner::FailAll(const absl::Status& status) {
  advancing_ = true;  // no run begins while the others fall
  std::vector<Id> all;
  for (const auto& [id, run] : runs_) all.push_back(id);
  for (const Id id : all) GiveUp(id, status);
  for (const auto& [id, run] : runs_) run->unheard = true;
  advancing_ = false;
  by_sequence_.clear();
  known_arenas_.clear();
}

void Runner::ModelChanged(const std::string& digest, const absl::Status& status) {
  if (!status.ok()) {
    // Runs that compute learn it at the gate of their next step.
    std::vector<Id> hopeless;
    for (const auto& [id, run] : runs_) {
      if (run->request.order.digest() == digest && !run->by_layer) hopeless.push_back(id);
    }
    for (const Id id : hopeless) {
      if (Find(id) != nullptr) GiveUp(id, status);
    }
  }
  Advance();
}

bool Runner::Wants(const std::string& digest) const {
  for (const auto& [id, run] : runs_) {
    if (run->stage == Run::Stage::kWaiting && !run->by_layer && run->request.order.digest() == digest)
      return true;
  }
  return false;
}

}  // namespace troupe::gpu
