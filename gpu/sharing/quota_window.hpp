// QUOTA WINDOW: how much of the present window's GPU time each function has used, of what it requests and of
// what it may have at most (FaST-GShare, 001, section 3.3.2).
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/units.hpp"

namespace troupe::gpu {

// Parts of a window's time, in percent. A function with several instances has as much for each of them.
struct TimeQuota {
  std::uint32_t request = 0;
  std::uint32_t limit = 0;  // 0: none
  std::uint32_t instances = 1;
  friend bool operator==(const TimeQuota&, const TimeQuota&) = default;
};

// Windows follow each other without gaps, and begin at multiples of their length: a clock that stands still or
// runs ahead neither ends nor stretches one. Time beyond the limit is charged to the windows that follow, so
// that over many of them no function has more than its limit. Pure.
class QuotaWindow {
 public:
  explicit QuotaWindow(Duration length) : length_(length) {}

  // From now on; what the function has used of the present window stays, and at most uses it up.
  void Set(const std::string& function, const TimeQuota& quota, Time now);
  // Time that a run of the function had the GPU, and that was not charged before.
  void Charge(const std::string& function, Duration used, Time now);
  // Q_limit - Q_used > 0.
  [[nodiscard]] bool HasTime(const std::string& function, Time now) const;
  // Q_miss = Q_request - Q_used.
  [[nodiscard]] Duration Missing(const std::string& function, Time now) const;
  [[nodiscard]] Duration Used(const std::string& function, Time now) const;
  // When the next window begins.
  [[nodiscard]] Time Next(Time now) const;
  // No run of the function is left: it is forgotten, unless it owes time to windows that follow, and then when
  // it owes nothing more.
  void Forget(const std::string& function, Time now);
  [[nodiscard]] std::size_t functions() const { return functions_.size(); }

 private:
  struct Function {
    TimeQuota quota;
    Duration used{};          // of window `window`
    std::int64_t window = 0;  // the number of that window
    bool forgotten = false;
  };
  [[nodiscard]] std::int64_t WindowAt(Time now) const { return now.time_since_epoch() / length_; }
  [[nodiscard]] Duration PartOf(std::uint32_t percent, const TimeQuota& quota) const;
  [[nodiscard]] Duration UsedIn(const Function& function, std::int64_t window) const;
  void Advance(Function& function, Time now) const;
  [[nodiscard]] Duration Rescaled(const Function& function, const TimeQuota& quota) const;
  void DropSettled(Time now);

  const Duration length_;
  absl::flat_hash_map<std::string, Function> functions_;
  std::size_t forgotten_ = 0;  // of functions_
};

}  // namespace troupe::gpu
