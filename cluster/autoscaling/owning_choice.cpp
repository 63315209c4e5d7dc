#include "cluster/autoscaling/owning_choice.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace troupe::cluster {

namespace {

double HalvedAfter(Duration passed, Duration half_life) {
  return std::exp2(-ToSeconds(passed) / ToSeconds(half_life));
}

}  // namespace

std::span<const PolicyEntry<OwningRule>> OwningRules() {
  static constexpr std::array<PolicyEntry<OwningRule>, 3> kTable = {{
      {"by-cost", "a function owns parts of GPUs while that costs less than binding it late",
       OwningRule::kByCost},
      {"always", "every function that has requests owns parts of GPUs", OwningRule::kAlways},
      {"never", "every request is bound late", OwningRule::kNever},
  }};
  return kTable;
}

absl::StatusOr<OwningRule> FindOwningRule(std::string_view name) {
  return FindPolicy("owning", name, OwningRules());
}

OwningChoice::OwningChoice(OwningRule rule)
    : rule_(rule),
      owns_(rule == OwningRule::kAlways),
      because_(rule == OwningRule::kNever ? "every request is bound late (owning=never)" : "") {}

void OwningChoice::TakeOver(Time now) {
  if (rule_ == OwningRule::kNever) return;
  overhead_ = 1;
  Change(true, now);
}

void OwningChoice::Rested() {
  if (rule_ == OwningRule::kByCost) owns_ = false;
}

void OwningChoice::Observe(const BindingLoad& load, const OwningTerms& terms, Time now) {
  const double keep = HalvedAfter(FromSeconds(load.seconds), kHalfLife);
  seen_ = {.seconds = keep * seen_.seconds + load.seconds,
           .ended = keep * seen_.ended + load.ended,
           .late = keep * seen_.late + load.late,
           .swapping = keep * seen_.swapping + load.swapping,
           .gpu_seconds = keep * seen_.gpu_seconds + load.gpu_seconds};
  if (!(seen_.seconds > 0)) return;
  const double used = seen_.gpu_seconds / seen_.seconds;
  costs_.owning = std::ceil(used / terms.utilisation / terms.smallest_part) * terms.smallest_part;
  if (!owns_ && seen_.ended >= kEnough && seen_.gpu_seconds > 0)
    overhead_ = seen_.late / seen_.ended / terms.late_allowed + seen_.swapping / seen_.gpu_seconds;
  costs_.late = used * (1 + (owns_ ? Remembered(now) : overhead_));
}

double OwningChoice::Remembered(Time now) const {
  return overhead_ * HalvedAfter(now - changed_, remembered_);
}

bool OwningChoice::Decide(Time now, bool may_change) {
  if (rule_ != OwningRule::kByCost || !may_change || seen_.ended < kEnough) return owns_;
  if (!owns_) {
    if (costs_.owning > 0 && costs_.owning * kMargin < costs_.late) Change(true, now);
  } else if (now - changed_ >= kStay && costs_.late * kMargin < costs_.owning) {
    Change(false, now);
  }
  return owns_;
}

void OwningChoice::Change(bool owns, Time now) {
  if (owns == owns_) return;
  because_ = Why();
  owns_ = owns;
  if (!owns) {
    left_ = now;
  } else if (left_) {
    // It was tried whether late binding does, and it did not: the next trial is later. A good one ends the doubt.
    const bool failed = now - *left_ < remembered_;
    remembered_ = failed ? std::min(2 * remembered_, kRememberedAtMost) : kRemembered;
  }
  changed_ = now;
  seen_ = {};
}

std::string OwningChoice::Why() const {
  if (seen_.ended < kEnough)
    return absl::StrCat("too few requests ended lately to compare what owning and late binding cost",
                        because_.empty() ? "" : "; before, ", because_);
  return absl::StrFormat(
      "owning parts of GPUs %s %.2f of a GPU, and binding late %s %.2f: its runs take %.2f, %.1f %% of its requests "
      "are late for a swap, and they wait for swaps %.2f s each second",
      owns_ ? "costs" : "would cost", costs_.owning, owns_ ? "is expected to cost" : "costs", costs_.late,
      seen_.gpu_seconds / seen_.seconds, 100 * seen_.late / seen_.ended, seen_.swapping / seen_.seconds);
}

}  // namespace troupe::cluster
