// How many cases a property test draws. `make test` runs these tests in both builds: the release build draws all
// cases, and a sanitizer's build, whose programs take ten to twenty times as long, an eighth of them.
#pragma once

#include <algorithm>

#include "base/sanitizer.hpp"

namespace troupe::test {

inline constexpr unsigned kDrawnOfEight = kSanitized ? 1 : 8;

// At least one.
template <class Count>
constexpr Count Draws(Count all) {
  return std::max<Count>(1, all * kDrawnOfEight / 8);
}

}  // namespace troupe::test
