// How many cases a property test draws. `make test` runs these tests in both builds: the release build draws all
// cases, and a sanitizer's build, whose programs take ten to twenty times as long, a quarter of them.
#pragma once

#include <algorithm>

#include "base/sanitizer.hpp"

namespace troupe::test {

inline constexpr unsigned kDrawnOfFour = kSanitized ? 1 : 4;

// At least one.
template <class Count>
constexpr Count Draws(Count all) {
  return std::max<Count>(1, all * kDrawnOfFour / 4);
}

}  // namespace troupe::test
