// The `sharing` slot: how the runs on one GPU share it, in space (SMs) and in time (a window's quotas).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/policy.hpp"
#include "base/units.hpp"

namespace troupe::gpu {

struct SharingPolicy {
  // Which runs compute at the same time.
  enum class Space {
    kShares,      // those whose shares of the SMs fit beside each other
    kEverywhere,  // as many as the worker has streams, each on all SMs
    kOne,         // one, on all SMs
  };
  // What the runs in the queue do while the share of the run before them finds no room.
  enum class Behind {
    kWait,
    kPass,  // the next run whose share has room begins, before the same run at most kMostPasses times
  };
  Space space = Space::kShares;
  Behind behind = Behind::kWait;
  bool quotas = true;         // functions have a part of each window's time
  bool one_function = false;  // a function has the GPU until no run of it is left
};

// How many runs may pass one that waits for room.
inline constexpr std::uint32_t kMostPasses = 16;
// Percent of each window's time that the functions without a quota are to get together, before functions with
// quotas get more than they request.
inline constexpr std::uint32_t kLateBindingFloor = 5;

// Bounds of the window of which functions have their quotas.
inline constexpr Duration kShortestWindow = std::chrono::milliseconds(10);
inline constexpr Duration kLongestWindow = std::chrono::minutes(1);

inline constexpr std::string_view kDefaultSharing = "fast";

// `fast` (default): FaST-GShare's multi-token scheduler (001, 3.3.2): functions below their limit, those first
//   that lack most of what they request; runs compute beside each other while their shares of the SMs add up
//   to at most 100 %, and the first that does not fit stops those behind it.
// `fast-bypass`: the same, but runs that fit pass those that do not, 16 times at most.
// `time-sharing`: one run at a time, on all SMs, within the quotas (the one token of 001's baseline).
// `exclusive`: one function has the GPU, one run at a time, until it has none left (001's baseline).
// `racing`: as many runs as there are streams, each on all SMs, without quotas (001's baseline).
[[nodiscard]] std::span<const PolicyEntry<SharingPolicy>> SharingPolicies();
// The empty name is the default. NotFound lists the names.
[[nodiscard]] absl::StatusOr<SharingPolicy> FindSharingPolicy(std::string_view name);

}  // namespace troupe::gpu
