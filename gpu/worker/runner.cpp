#include "gpu/worker/runner.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/worker/run_kept.hpp"
#include "gpu/worker/run_state.hpp"
#include "gpu/worker/run_weights.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

using transport::SteadyNow;

Runner::Runner(WorkerDevice& device, TaskQueue& queue, Lanes lanes, const WorkerLimits& limits,
               Residency& residency, Preparer& preparer)
    : limits_(limits),
      sharing_(FindLinkSharing(device.links.options().sharing).value_or(LinkSharing::kDeadline)),
      residency_(residency),
      preparer_(preparer),
      tensors_(device.tensors),
      memory_(device.memory, device.tensors, 100 * device.sharing.concurrency, limits.plans,
              device.links.curve().elbow),
      gate_(device.sharing, device.device->info().shares, device.gate, queue, [this] { Advance(); }),
      slots_(
          *device.device, queue, lanes,
          {.ended = [this](
                        RunId id, const Completion& completion,
                        const std::vector<proto::TensorSpec>& outputs) { Computed(id, completion, outputs); },
           .reached = [this](RunId id, std::size_t step) { Reached(id, step); }}),
      copies_(device, queue, lanes, limits,
              {.fetched = [this](RunId id, RunCopies::Inputs inputs) { InputsHere(id, std::move(inputs)); },
               .staged = [this](RunId id, const absl::Status& status) { Staged(id, status); },
               .left = [this](RunId id, const absl::Status& status) { Left(id, status); },
               .landed = [this](RunId id, const absl::Status& status) { LayersLanded(id, status); },
               .begun = [this] { Advance(); }}),
      chooser_(runs_, memory_, gate_, residency, limits) {}

Runner::~Runner() {
  // What the streams still do uses the runs' memory. What computes may wait for groups that come in.
  runs_.ForEach([](Run& run) {
    if (run.layers != nullptr) run.layers->Stop(absl::CancelledError("the worker ends"));
  });
  gate_.Close();
  slots_.Close();
  copies_.Close();
}

std::unique_ptr<Run> Runner::Take(RunId id) {
  std::unique_ptr<Run> run = runs_.Take(id);
  gate_.Leave(*run);
  LeaveState(residency_.states(), id, *run);
  LeaveKept(tensors_, *run);
  return run;
}

void Runner::Submit(RunRequest request, Reply reply) {
  if (runs_.waiting() >= limits_.waiting_runs) {
    reply.Fail(
        absl::ResourceExhaustedError(absl::StrCat(runs_.waiting(), " runs wait at this worker already")));
    return;
  }
  const std::uint64_t sequence = request.sequence;
  const Urgency urgency = UrgencyOf(sharing_, request.received, request.deadline);
  const std::optional<RunId> id = runs_.Add(std::move(request), reply, urgency);
  if (!id) {
    reply.Fail(absl::InvalidArgumentError(absl::StrCat("sequence ", sequence, " is that of another run")));
    return;
  }
  Run& run = *runs_.Find(*id);
  run.sm_percent = gate_.PercentOf(run, slots_.size());
  gate_.Join(run);
  if (const absl::Status status = Accept(*id, run); !status.ok()) return GiveUp(*id, status);
  Advance();
}

absl::Status Runner::Accept(RunId id, Run& run) {
  const std::string& digest = run.request.order.digest();
  if (run.request.host) residency_.Claim(*run.request.host, run.request.deadline);
  if (residency_.table().StateOf(digest) == ModelTable::State::kAbsent) {
    TROUPE_RETURN_IF_ERROR(CheckByLayer(run.request));
    runs_.MarkByLayer(run);
  }
  if (run.request.deadline) residency_.Hurry(digest, *run.request.deadline);
  TROUPE_RETURN_IF_ERROR(JoinState(residency_.states(), id, run));
  TROUPE_RETURN_IF_ERROR(UseKept(tensors_, run));
  TROUPE_RETURN_IF_ERROR(FindPlan(id, run));
  // Preparation may have been refused, and the run with it.
  if (runs_.Find(id) != nullptr) copies_.Fetch(id, run);
  return absl::OkStatus();
}

absl::Status Runner::FindPlan(RunId id, Run& run) {
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

void Runner::PlanHere(RunId id, const absl::StatusOr<std::shared_ptr<DevicePlan>>& plan) {
  Run* run = runs_.Find(id);
  if (run == nullptr) return;
  run->preparing = false;
  if (!run->failed.ok() || !plan.ok()) {
    GiveUp(id, absl::Status(run->failed.ok() ? plan.status() : run->failed));
    return;
  }
  run->plan = *plan;
  Advance();
}

void Runner::InputsHere(RunId id, RunCopies::Inputs inputs) {
  Run* run = runs_.Find(id);
  if (run == nullptr) return;
  if (!inputs.ok()) {
    GiveUp(id, inputs.status());
    return;
  }
  run->inputs = *std::move(inputs);
  run->inputs_here = true;
  copies_.Remember(run->request.order);
  Advance();
}

// Not re-entered: what it starts may end at once and call back.
void Runner::Advance() {
  advance_.again = true;
  if (std::exchange(advance_.under_way, true)) return;
  while (std::exchange(advance_.again, false)) {
    StageSome(ModelPlace::kHere);
    if (residency_.table().loading() + runs_.by_layer() > 0) StageSome(ModelPlace::kComing);
    LaunchSome();
  }
  advance_.under_way = false;
}

void Runner::StageSome(ModelPlace place) {
  while (const auto next = chooser_.NextToStage(place, SteadyNow())) {
    if (!Stage(*next)) break;
  }
}

// False when the run has to wait for device memory that other runs hold.
bool Runner::Stage(RunId id) {
  Run& run = *runs_.Find(id);
  const std::string& digest = run.request.order.digest();
  const Bytes weights = chooser_.WeightsOf(run);
  if (run.plan->weights_bytes() > weights) {
    GiveUp(id, absl::FailedPreconditionError(absl::StrCat(
                   "model ", digest, " was prepared with ", run.plan->weights_bytes().count(),
                   " bytes of weights, ", run.by_layer ? "its host copy has " : "on the device are ",
                   weights.count())));
    return true;
  }
  if (const auto room = memory_.FunctionHasRoom(run, weights); !room.ok()) {
    GiveUp(id, room.status());
    return true;
  }
  if (const absl::Status taken = memory_.Take(run); !taken.ok()) {
    if (memory_.SomeHold() || (chooser_.PlaceOf(run) == ModelPlace::kComing && !run.by_layer)) return false;
    GiveUp(id, taken, memory_.NoFit());
    return true;
  }
  if (const absl::Status reserved = ReserveOutputs(run, limits_.inline_outputs); !reserved.ok()) {
    memory_.GiveBack(run);
    GiveUp(id, reserved);
    return true;
  }
  if (run.by_layer) {
    copies_.SendLayers(id, run, memory_.WindowOf(run));
  } else {
    run.model = residency_.table().Acquire(digest);
    run.arguments.weights = run.model->weights;
    run.load = residency_.Pipelined(digest);
  }
  runs_.LeaveQueue(id);
  run.stage = Run::Stage::kStaging;
  memory_.Stage(run);
  copies_.CopyIn(id, run);
  return true;
}

void Runner::Staged(RunId id, const absl::Status& status) {
  Run& run = *runs_.Find(id);
  run.copy_in = SteadyNow() - run.copy_in_begin;
  run.stage = Run::Stage::kReady;
  if (run.failed.ok()) run.failed = status;
  if (!run.failed.ok()) return GiveUp(id, absl::Status(run.failed));
  runs_.Ready(id);
  Advance();
}

// Not in order beyond the first: no slot stays free while a run could have it. Launches that have paused go
// on before others begin.
void Runner::LaunchSome() {
  const Time now = SteadyNow();
  std::set<RunId> passed;  // runs that found no room on the SMs
  while (gate_.Resume(now) && slots_.HasFree()) {
    const std::optional<RunId> next = chooser_.NextToLaunch(now, passed);
    if (!next) break;
    Run& run = *runs_.Find(*next);
    if (!gate_.Begin(run)) {
      if (gate_.policy().behind == SharingPolicy::Behind::kWait || run.passed >= kMostPasses) break;
      passed.insert(*next);
      continue;
    }
    if (const absl::Status taken = memory_.TakeActivations(run); !taken.ok()) {
      (void)gate_.Ended(run, Duration::zero());
      // In order: what it waits for comes back when those end that compute or leave, and others would take
      // it.
      if (memory_.SomeCompute()) break;
      GiveUp(*next, taken, memory_.NoFit());
      break;
    }
    for (const RunId id : passed) ++runs_.Find(id)->passed;
    runs_.LeaveQueue(*next);
    memory_.Unstage(run);
    slots_.Launch(*next, run);
    advance_.again = true;  // there is room to stage one more
  }
  gate_.Settled(chooser_.SomeAwaitWindow(now), now);
}

// What only the steps before this one used goes back, or is taken by weights that come.
void Runner::Reached(RunId id, std::size_t step) {
  Run* run = runs_.Find(id);
  if (run == nullptr || run->stage != Run::Stage::kComputing) return;
  if (run->layers != nullptr) copies_.SendLayersOf(*run, step);
  memory_.Reached(*run, step);
  Advance();  // a run may wait for the memory
}

void Runner::Computed(RunId id, const Completion& completion, const std::vector<proto::TensorSpec>& outputs) {
  Run& run = *runs_.Find(id);
  slots_.Leave(run);
  run.compute = completion.end - completion.begin - completion.paused;
  run.gpu_time = gate_.Ended(run, run.compute);
  run.cut_after = completion.cut_after;
  run.outputs = outputs;
  run.stage = Run::Stage::kLeaving;
  NoteGroups(run, completion);
  run.arguments.gate = nullptr;
  run.arguments.reached = nullptr;
  run.arguments.turn = nullptr;
  // A run that was cut says nothing about how long its plan takes.
  if (run.cut_after == Duration::zero())
    memory_.needs().Measured(run.plan, run.compute, run.last_group != Time());
  ReleaseModel(run);
  memory_.FreeActivations(run);
  if (run.layers != nullptr && run.load->complete()) memory_.FreeWindow(run);
  run.inputs.clear();
  Advance();  // before the outputs leave: the next run may compute meanwhile
  absl::Status status = completion.status;
  if (status.ok()) status = copies_.CopyOut(id, run);
  if (!status.ok() && !StopLayers(run, status)) Left(id, status);
}

void Runner::LayersLanded(RunId id, const absl::Status& status) {
  Run* run = runs_.Find(id);
  if (run == nullptr) return;  // it has had all its weights, and is answered
  run->layers->Landed();
  // The gate of a run that computes tells it.
  const bool computing = run->stage == Run::Stage::kComputing;
  if (!status.ok() && run->failed.ok() && !computing) run->failed = status;
  if (run->failed.ok() || !run->layers->quiet()) return;
  const absl::Status why = run->failed;
  if (run->stage == Run::Stage::kLeaving) return Left(id, why);
  if (run->stage == Run::Stage::kReady) GiveUp(id, why);
}

void Runner::Left(RunId id, const absl::Status& status) {
  if (Run& done = *runs_.Find(id); status.ok() && done.state != nullptr && !done.unheard)
    done.state->Commit();
  const Duration pause = gate_.PauseAfter(*runs_.Find(id), SteadyNow());
  std::unique_ptr<Run> run = Take(id);
  ReleaseModel(*run);
  memory_.Free(*run, status.ok() && !run->unheard);
  runs_.NoteDone();
  proto::WorkerOutcome outcome;
  if (status.ok()) outcome = OutcomeOf(*run, SteadyNow());
  if (pause > Duration::zero()) outcome.mutable_run()->set_next_turn_in_ns(pause.count());
  // Tells a run that was cut from a run that never began.
  if (run->cut_after > Duration::zero()) outcome.mutable_run()->set_compute_ns(run->cut_after.count());
  if (outcome.run().compute_ns() > 0)
    outcome.mutable_run()->set_others_ns((run->compute - run->gpu_time).count());
  Answer(std::move(run), status, std::move(outcome));
  Advance();  // a run may wait for the memory
}

void Runner::ReleaseModel(Run& run) {
  if (run.model) residency_.Release(run.request.order.digest(), *std::exchange(run.model, std::nullopt));
}

void Runner::GiveUp(RunId id, const absl::Status& status, proto::WorkerOutcome outcome) {
  Run& run = *runs_.Find(id);
  if (run.stage == Run::Stage::kStaging || run.preparing) {
    // Its inputs are on their way, or its plan is being made from the host copy, which may leave the region
    // with the answer: answered then.
    run.failed = status;
    return;
  }
  if (run.stage == Run::Stage::kComputing || run.stage == Run::Stage::kLeaving) return;
  if (StopLayers(run, status)) {
    runs_.LeaveQueue(id);  // answered when nothing reads its host copy any more
    return;
  }
  std::unique_ptr<Run> taken = Take(id);
  if (taken->stage == Run::Stage::kReady) {
    memory_.Unstage(*taken);
    ReleaseModel(*taken);
    memory_.Free(*taken);
  }
  Answer(std::move(taken), status, std::move(outcome));
  Advance();
}

// One that is given up may take others with it.
void Runner::GiveUpAll(const std::vector<RunId>& ids, const absl::Status& status) {
  for (const RunId id : ids) {
    if (runs_.Find(id) != nullptr) GiveUp(id, status);
  }
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
  if (const auto id = runs_.OfSequence(sequence))
    GiveUp(*id, absl::CancelledError("the request of this run was cancelled"));
}

void Runner::Expire(Time now) {
  runs_.Expire(now, [this](RunId id) {
    GiveUp(id, absl::DeadlineExceededError("the run did not begin within its timeout"));
  });
  if (gate_.next_turn() <= now) Advance();
}

void Runner::FailAll(const absl::Status& status) {
  advance_.under_way = true;  // no run begins while the others fall
  GiveUpAll(runs_.All([](const Run&) { return true; }), status);
  runs_.ForEach([](Run& run) { run.unheard = true; });
  advance_.under_way = false;
  runs_.ForgetSequences();
  copies_.ForgetArenas();
}

void Runner::ModelChanged(const std::string& digest, const absl::Status& status) {
  if (!status.ok()) {
    // Runs that compute learn it at the gate of their next step.
    GiveUpAll(
        runs_.All([&](const Run& run) { return run.request.order.digest() == digest && !run.by_layer; }),
        status);
  }
  Advance();
}

bool Runner::Wants(const std::string& digest) const {
  return runs_.Any([&](const Run& run) {
    return run.stage == Run::Stage::kWaiting && !run.by_layer && run.request.order.digest() == digest;
  });
}

void Runner::StatesChanged() {
  const auto hopeless =
      runs_.All([](const Run& run) { return run.state != nullptr && !run.state->failed.ok(); });
  for (const RunId id : hopeless) {
    if (Run* run = runs_.Find(id)) GiveUp(id, absl::Status(run->state->failed));
  }
  Advance();
}

}  // namespace troupe::gpu
