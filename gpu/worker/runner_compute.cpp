// How runs compute: as many at a time as the device does, each on a stream of its own.
#include <algorithm>
#include <optional>
#include <utility>

#include "gpu/worker/runner.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

using transport::SteadyNow;

// A launch holds its slot, also while it waits for a group: what has all its weights goes first, unless that
// makes late what need not be. A plan computes once at a time: its second run lets others pass.
std::optional<Runner::Id> Runner::NextToLaunch() {
  const Time now = SteadyNow();
  const auto here = ready_.First(now, [this](Id id) {
    const Run& run = *runs_.at(id);
    return (run.load == nullptr || run.load->complete()) && !Computes(*run.plan);
  });
  const auto coming = ready_.First(now, [this](Id id) {
    const Run& run = *runs_.at(id);
    return run.load != nullptr && !run.load->complete() && run.load->arrived() > 0 && !Computes(*run.plan);
  });
  if (!here || !coming) return here ? here : coming;
  const Run& first = *runs_.at(*here);
  const Run& other = *runs_.at(*coming);
  if (other.request.order.priority() > first.request.order.priority()) return here;
  return GoesBefore(LaunchableOf(other), LaunchableOf(first), now) ? coming : here;
}

Launchable Runner::LaunchableOf(const Run& run) {
  return {.urgency = run.urgency,
          .takes = needs_.Of(run.plan).resident_run,
          .weights = run.load == nullptr ? Time() : run.load->ExpectedEnd()};
}

bool Runner::Computes(const DevicePlan& plan) const {
  return std::ranges::any_of(
      slots_, [&](const Slot& slot) { return slot.run != nullptr && slot.run->plan.get() == &plan; });
}

// Not in order beyond the first: no slot stays free while a run could have it.
void Runner::LaunchSome() {
  for (Slot& slot : slots_) {
    if (slot.run != nullptr) continue;
    const std::optional<Id> next = NextToLaunch();
    if (!next) return;
    Run& run = *Find(*next);
    const std::optional<SmShare> share = shares_.Take(run.request.order.sm_partition());
    if (!share) return;  // until one ends that computes
    run.arguments.share = *share;
    if (const absl::Status taken = TakeActivations(*next, run); !taken.ok()) {
      shares_.Give(*share);
      // In order: what it waits for comes back when those end that compute or leave, and others would take
      // it.
      if (on_device_ > staged_ + staged_ahead_) return;
      GiveUp(*next, taken, NoFitOutcome(memory_));
      return;
    }
    Launch(*next, slot);
  }
}

void Runner::Launch(Id id, Slot& slot) {
  Run& run = *Find(id);
  ready_.Remove(id);
  slot.run = &run;
  LeaveStaging(run);
  run.stage = Run::Stage::kComputing;
  run.arguments.gate = GateOf(run);
  run.arguments.limit = Duration(run.request.order.run_limit_ns());
  slot.stream->Launch(run.plan, run.arguments,
                      [this, id](const Completion& completion, std::vector<proto::TensorSpec> outputs) {
                        queue_.Post([this, id, completion, outputs = std::move(outputs)] {
                          Computed(id, completion, outputs);
                        });
                      });
  ShowCompute(SteadyNow());
  again_ = true;  // there is room to stage one more
}

void Runner::ShowCompute(Time now) {
  std::vector<ComputeWatch::LaneState> states;
  for (const Slot& slot : slots_) {
    const EngineState state = slot.stream->launches();
    states.push_back({state.busy, slot.run != nullptr ? slot.run->request.sequence : 0, state.progress});
  }
  const ComputeWatch::LaneState shown = watch_.Observe(states, now);
  if (shown.order != 0) lanes_.At(Lane::kCompute, shown.order);
  if (shown.busy) return lanes_.Show(Lane::kCompute, true, shown.progress);
  const EngineState engine = memory_.device().engine(Engine::kCompute);
  lanes_.Show(Lane::kCompute, engine.busy, engine.progress);
}

StepGate Runner::GateOf(Run& run) const {
  StepGate gate;
  if (run.layers != nullptr) {
    gate = run.layers->Gate();
  } else if (run.load != nullptr && !run.load->complete()) {
    gate = run.load->GateFor(*run.plan);
  }
  if (!run.request.order.trace()) return gate;
  run.trace = std::make_shared<std::vector<Time>>();
  run.trace->reserve(run.plan->step_count());
  return [trace = run.trace, gate](std::size_t step) {
    trace->push_back(SteadyNow());
    return gate ? gate(step) : nullptr;
  };
}

void Runner::NoteGroups(Run& run, const Completion& completion) const {
  run.first_step = completion.begin;
  if (run.load == nullptr || !completion.status.ok()) return;
  const std::vector<std::uint32_t> needed =
      run.layers != nullptr ? run.layers->window().needed : GroupsNeeded(*run.plan, run.load->groups());
  if (!needed.empty()) run.first_step = std::max(run.first_step, run.load->ArrivalOf(needed.front()));
  const std::size_t all = *std::max_element(needed.begin(), needed.end());
  const Time last = run.load->ArrivalOf(all);
  if (last > completion.begin) run.last_group = last;
}

void Runner::Computed(Id id, const Completion& completion, std::vector<proto::TensorSpec> outputs) {
  Run& run = *Find(id);
  for (Slot& slot : slots_) {
    if (slot.run == &run) slot.run = nullptr;
  }
  shares_.Give(run.arguments.share);
  run.compute = completion.end - completion.begin;
  run.cut_after = completion.cut_after;
  run.outputs = std::move(outputs);
  run.stage = Run::Stage::kLeaving;
  NoteGroups(run, completion);
  run.arguments.gate = nullptr;
  run.arguments.reached = nullptr;
  // A run that was cut says nothing about how long its plan takes.
  if (run.cut_after == Duration::zero()) needs_.Measured(run.plan, run.compute, run.last_group != Time());
  ReleaseModel(run);
  FreeActivations(run);
  if (run.layers != nullptr && run.load->complete()) FreeWindow(run);
  run.inputs.clear();
  Advance();  // before the outputs leave: the next run may compute meanwhile
  absl::Status status = completion.status;
  if (status.ok()) status = CopyOutputs(id, run);
  if (!status.ok() && !LayersComing(run, status)) Left(id, status);
}

}  // namespace troupe::gpu
