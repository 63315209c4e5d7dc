// How long a launch may compute. Asked before each step, on the thread that runs the steps: a step that has
// begun always ends.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/units.hpp"

namespace troupe::gpu {

// Time during which the launch waited for its weights does not count. A process that was stopped, or that got
// no processor, sees the limit passed although it computed little: a launch is cut only when it is still
// computing an eighth of its limit after it was first seen to have passed it.
class LaunchLimit {
 public:
  // Zero or less: the launch is never cut.
  explicit LaunchLimit(Duration limit) : limit_(limit) {}

  void Began(Time now) { begin_ = now; }
  void Waited(Duration time) { waited_ += time; }
  // Whether the launch has to end before its next step.
  [[nodiscard]] bool Passed(Time now) {
    if (limit_ <= Duration::zero() || Used(now) <= limit_) return false;
    if (!seen_) seen_ = Used(now);
    return Used(now) - *seen_ >= limit_ / kParts;
  }
  [[nodiscard]] Duration Used(Time now) const { return now - begin_ - waited_; }
  // The longest piece of work that a launch does without asking: zero without a limit.
  [[nodiscard]] static Duration Piece(Duration limit) { return limit / kParts; }

 private:
  static constexpr int kParts = 8;
  Duration limit_;
  Time begin_{};
  Duration waited_{};
  std::optional<Duration> seen_{};  // what it had used when it was first seen past its limit
};

// How a launch that was cut ends.
[[nodiscard]] inline absl::Status CutBefore(std::size_t step, std::size_t steps, Duration used) {
  return absl::DeadlineExceededError(absl::StrCat("the run was cut before step ", step, " of ", steps,
                                                  ", after ", FormatDuration(used), " on the device"));
}

}  // namespace troupe::gpu
