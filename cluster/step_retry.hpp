// STEP RETRY: whether the call of a workflow's step that failed is made again, and when; and whether a run
// that failed may go on when its key is submitted again. Pure; the workflow run and the run log ask it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/random.hpp"
#include "base/units.hpp"

namespace troupe::cluster {

// UNAVAILABLE, RESOURCE_EXHAUSTED and ABORTED: the same call may be answered well a moment later.
[[nodiscard]] bool IsPassing(absl::StatusCode code);
// The same codes, and DEADLINE_EXCEEDED: another submission of the run brings a timeout of its own.
[[nodiscard]] bool MayReopen(absl::StatusCode code);

struct RetryLimits {
  Duration first = std::chrono::milliseconds(50);
  Duration longest = std::chrono::seconds(5);
};
// The pause before a call is made again. `failures`: how often it has failed, from 1. The pause doubles with
// each failure up to `longest`, and a random half of it is left out, so that calls that failed together do
// not come back together. It is never shorter than `asked`, what the refusal itself told (0: nothing).
[[nodiscard]] Duration RetryPause(const RetryLimits& limits, std::uint32_t failures, Duration asked,
                                  Random& random);

}  // namespace troupe::cluster
