// AUTOSCALER: how many instances each function has, and of which parts of which GPUs (FaST-GShare, 001, section 3.4, and
// what its Algorithm 1 leaves out). The table of rectangles is its own, so what is booked there is what its instances have.
// It decides only: what it decides is still to be carried out. Experiments run it in virtual time; the manager has the same
// functions and rules, on the rectangles that functions own (ownership/scaling.hpp). One thread; time is given. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/autoscaling/scaled_functions.hpp"

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
      : settings_(settings), table_(settings.packing, settings.replan), functions_(settings.window) {}

  // Errors as of RectangleTable::AddGpu.
  [[nodiscard]] absl::Status AddGpu(const GpuDescription& gpu) { return table_.AddGpu(gpu); }
  // Its instances are gone; the next tick adds what is lacking.
  std::vector<ScaleDecision> RemoveGpu(const std::string& gpu, Time now);

  // Errors as of ScaledFunctions::Add.
  [[nodiscard]] absl::Status AddFunction(const ScaledFunction& function) { return functions_.Add(function); }
  // Its instances drain no more and have no rectangles any more. Nothing when it is not here.
  void RemoveFunction(const std::string& function);

  // As ScaledFunctions::Tick; then GPUs are emptied or mended (RectangleTable::Replan).
  [[nodiscard]] std::vector<ScaleDecision> Tick(const std::map<std::string, FunctionLoad>& loads, Time now);
  // An instance that was to drain has no request any more. Nothing when it does not drain.
  std::vector<ScaleDecision> Drained(InstanceId id, Time now);

  [[nodiscard]] const RectangleTable& table() const { return table_; }
  // Serving and draining, ascending. Empty for a function that is not here.
  [[nodiscard]] std::vector<InstanceId> InstancesOf(const std::string& function) const;
  // The latest ten decisions about a function, oldest first.
  [[nodiscard]] std::vector<ScaleDecision> HistoryOf(const std::string& function) const;

 private:
  [[nodiscard]] ScalingTick TickOf(Time now, std::vector<ScaleDecision>& decisions) {
    return {
        .table = table_, .next_id = next_id_, .now = now, .ahead = settings_.ahead, .decisions = decisions};
  }

  const AutoscalerSettings settings_;
  RectangleTable table_;
  ScaledFunctions functions_;
  InstanceId next_id_ = 1;
};

}  // namespace troupe::cluster
