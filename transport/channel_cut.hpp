// A tensor channel that an operator's fault has cut: for a while it reads nothing of other processes, and
// serves no other host.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/units.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::transport {

// Shared by a daemon and its channel; only a daemon that allows faults has one. Own bytes stay readable, and
// so do inline ones. Any thread.
class ChannelCut {
 public:
  explicit ChannelCut(std::function<Time()> now = SteadyNow) : now_(std::move(now)) {}
  // A later end wins over an earlier one.
  void Until(Time end) {
    const auto wanted = end.time_since_epoch().count();
    auto now = until_.load();
    while (now < wanted && !until_.compare_exchange_weak(now, wanted)) {
    }
  }
  // Unavailable while it is cut.
  [[nodiscard]] absl::Status Check() const {
    const auto left = until_.load() - now_().time_since_epoch().count();
    if (left <= 0) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("tensors are cut by an injected fault for another ",
                                               FormatDuration(Duration(left)), "; try again then"));
  }

 private:
  const std::function<Time()> now_;
  std::atomic<Duration::rep> until_{0};  // of `now_`
};

}  // namespace troupe::transport
