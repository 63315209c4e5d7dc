// SLO COUNT: how many requests of one function that had a deadline ended, and how many of them in time.
#pragma once

#include <cstdint>

namespace troupe {

// For a function that names no percentile.
inline constexpr double kDefaultSloPercentile = 98;

struct SloCount {
  double percentile = kDefaultSloPercentile;
  std::uint64_t ended = 0;
  std::uint64_t in_time = 0;

  // One more request ended. `of` in (0, 100]: the percentile, 0 for the default. True when both counts were
  // halved, which happens past kLongest, so that old requests weigh less and less.
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
