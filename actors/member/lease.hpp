// LEASE: how long a member may go on with what the cluster manager last told it, when it hears nothing more.
// Written by the MEMBER actor, read by the actor that it speaks for: an actor that is asked for something new
// looks here, so a member actor that stands still ends the lease too. Threads: any.
//
// Counted from when the question was sent that the manager answered last: the manager counts from when it
// heard it, later, so a member's lease is over before the manager may think so.
#pragma once

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/units.hpp"
#include "cluster/exclusive_lease.hpp"

namespace troupe::actors {

class Lease {
 public:
  // Of a join: `lease` zero: for ever, but for what only one member may have.
  void Begin(Time sent, Duration lease, Time now) {
    lapsed_ = ExclusiveOver(now);
    lease_ = lease.count();
    Heard(sent);
  }
  void Heard(Time sent) { heard_ = sent.time_since_epoch().count(); }
  // Whether the member has joined since its process began.
  [[nodiscard]] bool HasBegun() const { return heard_ != kNever; }

  // A member that never joined has no lease that could end.
  [[nodiscard]] bool Over(Time now) const {
    const Duration lease(lease_);
    return lease > Duration::zero() && Silent(now) > lease;
  }
  // For what only one member may have: a function's state.
  [[nodiscard]] bool ExclusiveOver(Time now) const {
    return Silent(now) > cluster::ExclusiveLease(Duration(lease_));
  }
  // Whether it was over when the member joined last: another member may have what it had then.
  [[nodiscard]] bool Lapsed() const { return lapsed_; }
  [[nodiscard]] std::string Why(const std::string& member, Time now) const {
    const Duration lease = cluster::ExclusiveLease(Duration(lease_));
    return absl::StrCat("'", member, "' has not heard from the cluster manager for ",
                        FormatDuration(Silent(now)), ", longer than its lease of ", FormatDuration(lease),
                        ": it takes nothing new until it has joined again");
  }

 private:
  [[nodiscard]] Duration Silent(Time now) const {
    const auto heard = heard_.load();
    return heard == kNever ? Duration::zero() : now - Time(Duration(heard));
  }

  static constexpr Duration::rep kNever = -1;
  std::atomic<Duration::rep> heard_{kNever};
  std::atomic<Duration::rep> lease_{0};
  std::atomic<bool> lapsed_{false};
};

}  // namespace troupe::actors
