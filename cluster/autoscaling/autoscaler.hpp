// AUTOSCALER: how many instances each function has, and of which parts of which GPUs (FaST-GShare, 001, section 3.4, and
// what its Algorithm 1 leaves out). The table of rectangles is its own, so what is booked there is what its instances have.
// It decides only: what it decides is still to be carried out. One thread; time is given. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/autoscaling/function_scaler.hpp"
#include "cluster/autoscaling/scaling_policy.hpp"

namespace troupe::cluster {

struct AutoscalerSettings {
  PackingPolicy packing{};
  ReplanLimits replan{};
  Duration window = std::chrono::seconds(1);  // of which functions have their quotas
  // Demand is foreseen for so long: until the tick after this one, and until an instance that is added then serves.
  Duration ahead = std::chrono::seconds(2);
};

class Autoscaler {
 public:
  explicit Autoscaler(const AutoscalerSettings& settings)
      : settings_(settings), table_(settings.packing, settings.replan) {}

  // Errors as of RectangleTable::AddGpu.
  [[nodiscard]] absl::Status AddGpu(const GpuDescription& gpu) { return table_.AddGpu(gpu); }
  // Its instances are gone; the next tick adds what is lacking.
  std::vector<ScaleDecision> RemoveGpu(const std::string& gpu, Time now);

  // InvalidArgument: its limits contradict each other, or a point of its profile is not possible; NotFound: a policy or
  // forecast has no such name; AlreadyExists.
  [[nodiscard]] absl::Status AddFunction(const ScaledFunction& function);
  // Its instances drain no more and have no rectangles any more. Nothing when it is not here.
  void RemoveFunction(const std::string& function);

  // By function. One that is not in it has told nothing and stays as it is, but for its drains; of one that is not here
  // nothing is kept. The functions that lack most are served first.
  [[nodiscard]] std::vector<ScaleDecision> Tick(const std::map<std::string, FunctionLoad>& loads, Time now);
  // An instance that was to drain has no request any more. Nothing when it does not drain.
  std::vector<ScaleDecision> Drained(InstanceId id, Time now);

  [[nodiscard]] const RectangleTable& table() const { return table_; }
  // Serving and draining, ascending. Empty for a function that is not here.
  [[nodiscard]] std::vector<InstanceId> InstancesOf(const std::string& function) const;
  // The latest ten decisions about a function, oldest first.
  [[nodiscard]] std::vector<ScaleDecision> HistoryOf(const std::string& function) const;

 private:
  struct Scaled {
    FunctionScaler scaler;
    ScalingRule rule;
  };

  [[nodiscard]] ScalingTick TickOf(Time now, std::vector<ScaleDecision>& decisions) {
    return {
        .table = table_, .next_id = next_id_, .now = now, .ahead = settings_.ahead, .decisions = decisions};
  }
  void NameMoved(std::vector<ScaleDecision>& decisions) const;

  const AutoscalerSettings settings_;
  RectangleTable table_;
  std::map<std::string, Scaled> functions_;
  InstanceId next_id_ = 1;
};

}  // namespace troupe::cluster
