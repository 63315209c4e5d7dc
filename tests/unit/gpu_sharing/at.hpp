// Times of the tests of sharing.
#pragma once

#include "base/units.hpp"

namespace troupe::gpu::test {

// So long after the begin of a window of a second.
[[nodiscard]] inline Time At(double seconds) {
  return Time(FromSeconds(100 + seconds));
}

}  // namespace troupe::gpu::test
