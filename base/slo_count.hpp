// SLO COUNT: how the requests of one function ended, of those that had a deadline.
#pragma once

#include <cstdint>

namespace troupe {

// Of a function that names none.
inline constexpr double kDefaultSloPercentile = 98;

struct SloCount {
  double percentile = kDefaultSloPercentile;
  std::uint64_t ended = 0;
  std::uint64_t in_time = 0;

  // Another ended. `of` in (0, 100]: its percentile, 0 the default. True when both counts were halved, which
  // they are past kLongest, so that what a function was like long ago weighs less and less.
  bool Add(double of, bool was_in_time) {
    percentile = of > 0 ? of : kDefaultSloPercentile;
    ++ended;
    in_time += was_in_time ? 1 : 0;
    if (ended <= kLongest) return false;
    ended /= 2;
    in_time /= 2;
    return true;
  }

  static constexpr std::uint64_t kLongest = 100'000;
};

}  // namespace troupe
