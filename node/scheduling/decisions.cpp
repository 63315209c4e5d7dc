#include "node/scheduling/decisions.hpp"

#include "node/parts.hpp"

namespace troupe::node {

void Decisions::Decide() {
  const auto round = ++rounds_;
  const auto decision = parts_.scheduler.Decide(parts_.out.now());
  for (const auto& dispatch : decision.dispatches) parts_.dispatches.CarryOut(dispatch);
  for (const auto& prefetch : decision.prefetches) parts_.swaps.Prefetch(prefetch);
  for (const auto& [gpu, model] : decision.departures) parts_.evictions.Order(gpu, model);
  for (const auto& assignment : decision.assignments) parts_.runtimes.Reassign(assignment);
  parts_.runtimes.ArmGiveBack();
  // To reassign a runtime may lead to another decision, which then knows better what is wanted and due.
  const bool latest = round == rounds_;
  if (latest)
    for (const auto& model : decision.wanted) parts_.copies.Need(model);
  parts_.copies.Move();
  if (latest) Arm(decision.due);
  parts_.refill.Begin();
  parts_.trials.Begin();
  parts_.profile_trials.Begin();
}

void Decisions::CarryOut(const Consequences& consequences) {
  for (const auto& finished : consequences.finished) parts_.requests.Finish(finished);
  for (const auto& flight : consequences.cancel) parts_.requests.CancelAtWorker(flight.gpu, flight.request);
  for (const auto& eviction : consequences.evictions) {
    parts_.swaps.log().Evicted(EvictedAs::kForgotten);
    parts_.evictions.Order(eviction.gpu, eviction.model);
  }
  Decide();
  parts_.routers.GrantSoon();
}

void Decisions::Arm(Time due) {
  if (alarm_.Set(due)) parts_.out.WakeAt(Timer::kExpire, due);
}

void Decisions::OnTimer() {
  alarm_.WentOff(parts_.out.now());
  CarryOut(parts_.scheduler.Expire(parts_.out.now()));
  parts_.sequences.Left();  // a state that stayed on its GPU may leave now
}

void Decisions::On(const RuntimeLost& event) {
  const auto now = parts_.out.now();
  CarryOut(event.unfit ? parts_.scheduler.Apply(GpuUnfit{event.gpu, event.why}, now)
                       : parts_.scheduler.Apply(WorkerLost{event.gpu, event.why}, now));
}

}  // namespace troupe::node
