// FUNCTION SCALER: the instances of one function, what is known of its load, and its latest decisions. A rule
// (cluster/autoscaling/scaling_policy.hpp) says what is to be done; this books it in the table of rectangles and writes
// down why. Owned by the autoscaler; pure.
//
//   (Add) serving -> (Drain) draining -> (Drained, or `limits.drain` later) gone
//   serving, draining -> (GpuGone) gone
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/autoscaling/function_rates.hpp"
#include "cluster/autoscaling/scaled_function.hpp"

namespace troupe::cluster {

// One tick of the autoscaler: where what it decides goes.
struct ScalingTick {
  RectangleTable& table;
  InstanceId& next_id;
  Time now{};
  Duration ahead{};  // until an instance that is added now serves
  std::vector<ScaleDecision>& decisions;
};

// Of the latest tick. Rates are requests a second.
struct ScalingNeed {
  double arrived = 0;
  double expected = 0;  // by the forecast, and to catch up with what waits
  double wanted = 0;    // what instances should be able to serve: `expected` at the target utilisation
  double wanted_held =
      0;  // the most that was wanted within `limits.hold`, but for what was caught up with since
  std::uint64_t waiting = 0;
  double busy = 0;  // as of FunctionLoad
};

struct ServingInstance {
  InstanceId id = 0;
  std::string kind{};
  Extent extent{};
  double per_second = 0;
  [[nodiscard]] double RatePerResource() const {
    return cluster::RatePerResource({.extent = extent, .per_second = per_second, .run = {}});
  }
};

// A point for each kind of GPU; the instance has that of the GPU where it is placed.
using PointByKind = std::map<std::string, ScalePoint>;

class FunctionScaler {
 public:
  static constexpr std::size_t kKeptDecisions = 10;

  struct Rules {
    ForecastRule forecast;
    OwningRule owning;
  };
  FunctionScaler(ScaledFunction function, Rules rules, Duration window);

  // Limits, profile or kinds are others now; what was observed stays. The name is the same.
  void Change(ScaledFunction function);
  // It has these instances in a table that was made anew, none drains, and new ones may be on these nodes.
  void Adopt(const std::vector<InstanceId>& instances, NodeNames nodes);

  // The instances that it has were wanted a moment ago, though it was not this scaler that added them: they stay for
  // `limits.hold`, as any others do that are too much.
  void TakeOver(const RectangleTable& table, Time now);

  void Observe(const FunctionLoad& load, const ScalingTick& tick);
  [[nodiscard]] const ScalingNeed& need() const { return need_; }
  // Whether the function is to have instances at all. If it is not, the instances that serve begin to drain.
  bool DecideOwning(bool may_change, const ScalingTick& tick);
  [[nodiscard]] const OwningChoice& owning() const { return owning_; }
  // It is bound late, since no request came for long.
  void Rest(const std::string& why, const ScalingTick& tick);
  // Without a request for `limits.idle`.
  [[nodiscard]] bool Idle(Time now) const { return asked_ && now - *asked_ >= function_.limits.idle; }

  [[nodiscard]] const ScaledFunction& function() const { return function_; }
  [[nodiscard]] const FunctionRates& rates() const { return rates_; }
  // Those that do not drain: the least throughput for each part of a GPU first, as 001's queue has them.
  [[nodiscard]] std::vector<ServingInstance> Serving(const RectangleTable& table) const;
  [[nodiscard]] double Capacity(const RectangleTable& table) const;  // of these
  // Serving and draining, ascending.
  [[nodiscard]] std::vector<InstanceId> Instances() const;

  // False: there is no room. `why`: what the rule says of it, in words.
  bool Add(const PointByKind& points, const std::string& why, const ScalingTick& tick);
  bool Resize(InstanceId id, const ScalePoint& point, const std::string& why, const ScalingTick& tick);
  void Drain(InstanceId id, const std::string& why, const ScalingTick& tick);
  // Without an instance to name. The same action is not written down again before another one was.
  void Note(ScaleAction action, const std::string& why, const ScalingTick& tick);

  // False: it is not one of this function's that drain.
  bool Drained(InstanceId id, const ScalingTick& tick);
  void DrainedByTime(const ScalingTick& tick);
  void GpuGone(InstanceId id, const std::string& gpu, const ScalingTick& tick);

  // An instance of it has another place, so that a plan fits.
  void Moved(const ScaleDecision& move) { Remember(move); }

  // Oldest first, ten at most.
  [[nodiscard]] const std::deque<ScaleDecision>& history() const { return history_; }
  // Of a rule that does not look at every tick.
  struct Looks {
    std::optional<Time> latest{};
    std::deque<std::pair<Time, std::uint32_t>> recommended{};  // how many instances the rule wanted
  };
  [[nodiscard]] Looks& looks() { return looks_; }

 private:
  struct Instance {
    bool draining = false;
    Time until{};  // while it drains
  };

  [[nodiscard]] std::map<std::string, InstanceSize> SizesOf(const PointByKind& points) const;
  [[nodiscard]] OwningTerms Terms() const;
  void BindLate(const std::string& why, const ScalingTick& tick);
  void Decide(ScaleDecision decision, const ScalingTick& tick);
  void Remember(const ScaleDecision& decision);
  void Remove(InstanceId id, const std::string& why, const ScalingTick& tick);

  ScaledFunction function_;
  NodeNames nodes_{};  // where new instances may be; null: on each
  FunctionRates rates_;
  DemandForecast forecast_;
  OwningChoice owning_;
  ScalingNeed need_;
  std::map<InstanceId, Instance> instances_;
  std::deque<std::pair<Time, double>> wanted_;  // by the forecast alone, of the ticks within `limits.hold`
  std::optional<Time> asked_{};                 // the latest request, or else the first observation
  Looks looks_;
  std::deque<ScaleDecision> history_;
};

}  // namespace troupe::cluster
