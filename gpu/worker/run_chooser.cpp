#include "gpu/worker/run_chooser.hpp"

#include "gpu/worker/run_state.hpp"

namespace troupe::gpu {

ModelPlace RunChooser::PlaceOf(const Run& run) const {
  if (run.by_layer) return ModelPlace::kComing;
  const std::string& digest = run.request.order.digest();
  switch (residency_.table().StateOf(digest)) {
    case ModelTable::State::kAbsent:
      return ModelPlace::kAway;
    case ModelTable::State::kLoading:
      return residency_.Pipelined(digest) != nullptr ? ModelPlace::kComing : ModelPlace::kAway;
    case ModelTable::State::kResident:
    case ModelTable::State::kRunning:
      return ModelPlace::kHere;
  }
  return ModelPlace::kAway;
}

// Runs whose models are on their way have places of their own, so that they never keep a run that could
// compute now from being staged.
std::optional<RunId> RunChooser::NextToStage(ModelPlace place, Time now) const {
  const bool ahead = place == ModelPlace::kComing;
  if (memory_.staged(ahead) >= limits_.staged_runs * slots_.size()) return std::nullopt;
  return runs_.FirstWaiting(now, [&](RunId id, const Run& run) {
    return run.plan != nullptr && run.inputs_here && PlaceOf(run) == place && HasTurn(id, run) &&
           memory_.StagedOf(run, ahead) < limits_.staged_runs;
  });
}

// A launch holds its slot, also while it waits for a group: what has all its weights goes first, unless that
// makes late what need not be. A plan computes once at a time: its second run lets others pass.
std::optional<RunId> RunChooser::NextToLaunch(Time now) const {
  const auto here = runs_.FirstReady(now, [this](RunId, const Run& run) {
    return (run.load == nullptr || run.load->complete()) && !slots_.Computes(*run.plan);
  });
  const auto coming = runs_.FirstReady(now, [this](RunId, const Run& run) {
    return run.load != nullptr && !run.load->complete() && run.load->arrived() > 0 &&
           !slots_.Computes(*run.plan);
  });
  if (!here || !coming) return here ? here : coming;
  const Run& first = runs_.At(*here);
  const Run& other = runs_.At(*coming);
  if (other.request.order.priority() > first.request.order.priority()) return here;
  return GoesBefore(LaunchableOf(other), LaunchableOf(first), now) ? coming : here;
}

Launchable RunChooser::LaunchableOf(const Run& run) const {
  return {.urgency = run.urgency,
          .takes = memory_.needs().Of(run.plan).resident_run,
          .weights = run.load == nullptr ? Time() : run.load->ExpectedEnd()};
}

}  // namespace troupe::gpu
