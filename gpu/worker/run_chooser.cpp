#include "gpu/worker/run_chooser.hpp"

#include "gpu/worker/run_state.hpp"
#include "proto/gpu_instances.hpp"

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

Bytes RunChooser::WeightsOf(const Run& run) const {
  return run.by_layer ? Bytes(run.request.host->weights.size())
                      : residency_.table().SizeOf(run.request.order.digest());
}

// A run that never may is chosen, and refused.
bool RunChooser::MayTakeMemory(const Run& run) const {
  const auto room = memory_.FunctionHasRoom(run, WeightsOf(run));
  return !room.ok() || *room;
}

// Runs whose models are on their way have places of their own, so that they never keep a run that could
// compute now from being staged.
std::optional<RunId> RunChooser::NextToStage(ModelPlace place, Time now) const {
  const bool ahead = place == ModelPlace::kComing;
  const std::uint32_t most = limits_.staged_runs * 100;  // percent of the SMs
  const bool full = memory_.staged_percent(ahead) >= most * gate_.concurrency();
  // Runs of functions with a quota are few (the node gives no more than may compute, and one), and wait for no
  // run of another function to be staged.
  const auto has_place = [&](const Run& run) {
    return proto::HasQuota(run.request.order.sharing()) ||
           (!full && memory_.StagedPercentOf(run, ahead) < most);
  };
  return runs_.FirstWaiting(now, [&](RunId id, const Run& run) {
    return has_place(run) && run.plan != nullptr && run.inputs_here && PlaceOf(run) == place &&
           HasTurn(id, run) && MayTakeMemory(run);
  });
}

// A launch holds its slot, also while it waits for a group: what has all its weights goes first, unless that
// makes late what need not be. Among those that may begin, runs go first whose functions lack most of what
// they request.
std::optional<RunId> RunChooser::NextToLaunch(Time now, const std::set<RunId>& passed) const {
  const auto may = [&](RunId id, const Run& run) { return !passed.contains(id) && gate_.MayBegin(run, now); };
  const auto all_here = [](const Run& run) { return run.load == nullptr || run.load->complete(); };
  std::optional<TokenScheduler::Rank> first_rank;
  if (!gate_.RanksEqual()) {
    runs_.ForEachReady([&](RunId id, const Run& run) {
      if (!may(id, run) || !(all_here(run) || run.load->arrived() > 0)) return;
      const TokenScheduler::Rank rank = gate_.RankOf(run, now);
      if (!first_rank || rank < *first_rank) first_rank = rank;
    });
  }
  const auto goes = [&](RunId id, const Run& run) {
    return may(id, run) && (!first_rank || gate_.RankOf(run, now) == *first_rank);
  };
  const auto here =
      runs_.FirstReady(now, [&](RunId id, const Run& run) { return all_here(run) && goes(id, run); });
  const auto coming = runs_.FirstReady(now, [&](RunId id, const Run& run) {
    return !all_here(run) && run.load->arrived() > 0 && goes(id, run);
  });
  if (!here || !coming) return here ? here : coming;
  const Run& first = runs_.At(*here);
  const Run& other = runs_.At(*coming);
  if (other.request.order.priority() > first.request.order.priority()) return here;
  return GoesBefore(LaunchableOf(other), LaunchableOf(first), now) ? coming : here;
}

bool RunChooser::SomeAwaitWindow(Time now) const {
  return !gate_.RanksEqual() &&
         runs_.FirstReady(now, [&](RunId, const Run& run) { return !gate_.HasTime(run, now); }).has_value();
}

Launchable RunChooser::LaunchableOf(const Run& run) const {
  return {.urgency = run.urgency,
          .takes = memory_.needs().Of(run.plan).resident_run,
          .weights = run.load == nullptr ? Time() : run.load->ExpectedEnd()};
}

}  // namespace troupe::gpu
