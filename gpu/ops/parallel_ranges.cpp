#include "gpu/ops/parallel_ranges.hpp"

#include <cstdlib>

namespace troupe::gpu {

bool ThreadsWaitAwake() {
  static const bool awake = [] {
    const char* const looks = std::getenv("GOMP_SPINCOUNT");
    return looks != nullptr && std::atoll(looks) > 0;
  }();
  return awake;
}

}  // namespace troupe::gpu
