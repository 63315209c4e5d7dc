#include "cluster/step_retry.hpp"

#include <algorithm>

namespace troupe::cluster {

bool IsPassing(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kResourceExhausted ||
         code == absl::StatusCode::kAborted;
}

bool MayReopen(absl::StatusCode code) {
  return IsPassing(code) || code == absl::StatusCode::kDeadlineExceeded;
}

Duration RetryPause(const RetryLimits& limits, std::uint32_t failures, Duration asked, Random& random) {
  Duration pause = limits.first;
  for (std::uint32_t i = 1; i < failures && pause < limits.longest; ++i) pause *= 2;
  pause = std::min(pause, limits.longest);
  const auto left_out =
      static_cast<Duration::rep>(random.Uniform() * 0.5 * static_cast<double>(pause.count()));
  return std::max(asked, pause - Duration(left_out));
}

}  // namespace troupe::cluster
