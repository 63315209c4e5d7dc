// How many calls a step's for_each may make.
#pragma once

#include <cstdint>

namespace troupe::cluster {

struct ForEachLimits {
  static constexpr std::uint64_t kMost = 1024;  // when the step does not say
  static constexpr std::uint64_t kLargestMost = 16384;
  static constexpr std::uint64_t kAtOnce = 32;  // under way at a time, when the step does not say
  static constexpr std::uint64_t kLargestAtOnce = 1024;
};

}  // namespace troupe::cluster
