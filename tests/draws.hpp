// How many cases a property test draws. `make test` runs these tests in both builds: the release build draws all
// cases, and a sanitizer's build, whose programs take ten to twenty times as long, a quarter of them.
#pragma once

#include <algorithm>

namespace troupe::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr unsigned kDrawnOfFour = 1;
#else
inline constexpr unsigned kDrawnOfFour = 4;
#endif

// At least one.
template <class Count>
constexpr Count Draws(Count all) {
  return std::max<Count>(1, all * kDrawnOfFour / 4);
}

}  // namespace troupe::test
