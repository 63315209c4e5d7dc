// What the autoscaler is told of functions, and what it decides: plain structs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "cluster/autoscaling/demand_forecast.hpp"
#include "cluster/autoscaling/owning_choice.hpp"
#include "cluster/rectangles/rectangle_table.hpp"

namespace troupe::cluster {

struct ScaleLimits {
  std::uint32_t min_instances = 0;
  std::uint32_t max_instances = 64;
  double target_utilisation = 0.7;  // of the instances' throughput, above 0, at most 1
  // Less is needed for so long before instances shrink or go.
  Duration hold = std::chrono::seconds(15);
  // Without a request for so long a function that may have no instance is bound late: its requests go to whichever GPU has
  // time for them, and its host copy stays, so that no later request waits for a cold start.
  Duration idle = std::chrono::minutes(10);
  // An instance that drains goes after so long even if it has not said that it is empty.
  Duration drain = std::chrono::seconds(30);
  bool operator==(const ScaleLimits&) const = default;
};
// InvalidArgument says which limits contradict each other.
[[nodiscard]] absl::Status CheckScaleLimits(const ScaleLimits& limits);

// What one instance can do on such a part of a GPU, as a profile says (001, section 3.2).
struct ScalePoint {
  Extent extent{};
  double per_second = 0;  // requests, while it is never without one
  Duration run{};         // of one request
  bool operator==(const ScalePoint&) const = default;
};

struct ScaledFunction {
  std::string name{};
  ScaleLimits limits{};
  std::string policy = "troupe";  // cluster/autoscaling/scaling_policy.hpp
  std::string forecast = "holt";
  std::string owning = "always";  // cluster/autoscaling/owning_choice.hpp
  Duration deadline{};            // of its SLO; zero: none
  double late_allowed = 0.02;     // the part of its requests that the SLO lets be late
  std::map<std::string, std::vector<ScalePoint>> points{};  // by kind of GPU; empty: no profile
  // Kinds that can run it although there is no profile; with profiles, those of `points` can.
  std::vector<std::string> kinds{};
  std::vector<Extent>
      extents{};  // parts that instances may have without a profile; empty: those of the profiler's grid
  Bytes memory{}, weights{};  // as of InstanceSize
  Spread spread = Spread::kAnywhere;
  bool operator==(const ScaledFunction&) const = default;
};

// Of one function since the tick before.
struct FunctionLoad {
  double arrived_per_second = 0;
  double served_per_second = 0;
  std::uint64_t waiting = 0;  // requests that no instance has begun
  // Of their rectangles, area by time, the part in which instances computed. Above 1 when they also took time that others
  // left.
  double busy = 0;
  std::optional<double> known_per_second{};  // with the forecast `oracle`
  BindingLoad binding{};                     // unless the function owns whatever it costs
};

enum class ScaleAction {
  kAdd,       // a new instance
  kResize,    // an instance gets another rectangle of its GPU, or of another one
  kDrain,     // an instance takes no new requests
  kRemove,    // an instance that has drained, or whose GPU is gone, has no rectangle any more
  kOwn,       // the function is to have instances, as that costs less than binding it late
  kBindLate,  // the function is to have no instance any more
  kMove,      // others changed places, so that a plan fits
  kNoRoom,    // more is needed than the GPUs have room for
};

// "add", "resize", "drain", "remove", "own", "bind-late", "move", "no-room".
[[nodiscard]] std::string_view NameOf(ScaleAction action);

struct ScaleDecision {
  Time at{};
  std::string function{};
  ScaleAction action = ScaleAction::kAdd;
  InstanceId instance = 0;  // but for kOwn, kBindLate and kNoRoom
  std::string gpu{};        // where the instance is from now on, or was
  Rectangle place{};
  std::string reason{};  // in words and numbers
};

}  // namespace troupe::cluster
