// TIME ESTIMATES: how long loads and runs take, on each kind of the node's GPUs. One of the scheduler's tables.
#pragma once

#include <algorithm>

#include "node/scheduling/model_entries.hpp"
#include "scheduling/cost_model.hpp"

namespace troupe::node {

struct TimeEstimates {
  TimeEstimates(const ModelEntries& known, CostDefaults defaults) : models(known), costs(defaults) {}

  // As long as it has been here: what its loads took; else by its size.
  [[nodiscard]] Duration LoadTimeOn(const ModelEntry& model, KindId kind) const {
    const RunningEstimate* const load = kind == 0 ? &model.load : model.loads.Find(kind);
    return load != nullptr && load->known() ? load->Or({}) : costs.LoadTime(model.weights, kind);
  }
  static void ObserveLoad(ModelEntry& model, Duration took, KindId kind) {
    (kind == 0 ? model.load : model.loads.At(kind)).Observe(took);
  }
  // As the profile of its function says, else as was learned of its model.
  [[nodiscard]] Duration RunTimeOn(const RequestEntry& entry, KindId kind) const {
    const ProfiledRuns& profiled = entry.request.profiled_runs;
    if (kind < profiled.size() && profiled[kind] > Duration::zero()) return profiled[kind];
    return costs.RunTime(models[entry.model].cost, kind);
  }
  // On the kind of the node's GPUs where it takes least: what nothing can be done sooner than.
  [[nodiscard]] Duration LoadTimeOf(const ModelEntry& model) const {
    return Least([&](KindId kind) { return LoadTimeOn(model, kind); });
  }
  [[nodiscard]] Duration RunTimeOf(const RequestEntry& entry) const {
    return Least([&](KindId kind) { return RunTimeOn(entry, kind); });
  }
  // Of the node's kinds the one on which a run of the model takes least.
  [[nodiscard]] KindId FastestKindFor(const ModelEntry& model) const {
    KindId fastest = 0;
    for (KindId kind = 1; kind < kinds; ++kind)
      if (costs.RunTime(model.cost, kind) < costs.RunTime(model.cost, fastest)) fastest = kind;
    return fastest;
  }
  [[nodiscard]] bool KindsDiffer() const { return kinds > 1; }
  // On some kinds it would be in time if it had a GPU for itself from its arrival on, and on others late.
  [[nodiscard]] bool NeedsFast(const RequestEntry& entry) const {
    if (!KindsDiffer() || entry.request.deadline == Time::max()) return false;
    KindId in_time = 0;
    for (KindId kind = 0; kind < kinds; ++kind)
      in_time += entry.arrival + RunTimeOn(entry, kind) <= entry.request.deadline ? 1 : 0;
    return in_time > 0 && in_time < kinds;
  }

  const ModelEntries& models;
  CostModel costs;
  KindId kinds = 1;  // of the node's GPUs: they have the numbers from 0

 private:
  template <class Time>
  [[nodiscard]] Duration Least(Time time) const {
    Duration least = time(KindId{0});
    for (KindId kind = 1; kind < kinds; ++kind) least = std::min(least, time(kind));
    return least;
  }
};

}  // namespace troupe::node
