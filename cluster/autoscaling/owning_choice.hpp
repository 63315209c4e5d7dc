// OWNING CHOICE: whether a function that follows its load owns parts of GPUs, or is bound late, by what each would cost.
// One for each function, owned by its scaler; pure.
//
//   late -> (owning costs less, by kMargin) owning -> (binding late is expected to cost less, kStay later) late
//
// Costs are in GPUs, that is in seconds of a GPU for each second:
//   owning   the parts of GPUs that its load asks for, whether it uses them or not
//   late     the time that its runs have a GPU, the time that its requests wait for swaps, and a price for requests that are
//            late for a swap: if the SLO lets one of N requests be late (N is 50 at the 98th percentile), one of these costs N
//            runs, so that a function that is as late as its SLO allows costs twice its runs. What is late for other reasons
//            counts for nothing: on GPUs that have more to do than they can, a function that owns makes others late instead
// While the function owns, the cost of binding it late cannot be seen. The latest known cost counts instead, and fades; it
// fades more slowly after each trial of late binding that failed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/policy.hpp"
#include "base/units.hpp"

namespace troupe::cluster {

enum class OwningRule { kByCost, kAlways, kNever };

//   by-cost  the default
//   always   as FaST-GShare does (001): whatever has requests owns; without one for long it is bound late
//   never    as Torpor does (002): every request is bound late
[[nodiscard]] std::span<const PolicyEntry<OwningRule>> OwningRules();
[[nodiscard]] absl::StatusOr<OwningRule> FindOwningRule(std::string_view name);

// Of one function since the look before.
struct BindingLoad {
  double seconds = 0;      // since then
  double ended = 0;        // requests
  double late = 0;         // of these, late for a swap
  double swapping = 0;     // seconds that they waited for swaps, all together
  double gpu_seconds = 0;  // that runs had a GPU, each by its part of the SMs
};

// What a function declares; each number is above 0.
struct OwningTerms {
  double late_allowed = 0;   // the part of its requests that its SLO lets be late
  double utilisation = 0;    // of its parts of GPUs that is wanted
  double smallest_part = 0;  // of a GPU that it can own; others are multiples of it
};

struct BindingCosts {
  double owning = 0, late = 0;  // GPUs
};

class OwningChoice {
 public:
  // Longer ago counts for less: a look counts half after so long.
  static constexpr Duration kHalfLife = std::chrono::seconds(5);
  // Fewer requests say nothing.
  static constexpr double kEnough = 10;
  // The other way has to cost so much less.
  static constexpr double kMargin = 1.2;
  // What a function owns it owns for so long.
  static constexpr Duration kStay = std::chrono::minutes(1);
  // What binding late cost counts half after so long, and after a trial that failed after twice as long as before.
  static constexpr Duration kRemembered = std::chrono::minutes(5);
  static constexpr Duration kRememberedAtMost = std::chrono::hours(4);

  explicit OwningChoice(OwningRule rule);

  // The function is found to own: after a restart of the manager, or as it was declared before. What binding late would
  // cost is not known then: the overhead is taken to be as much as its runs.
  void TakeOver(Time now);
  // No request came for long: the next ones are bound late, unless the rule says otherwise.
  void Rested();
  void Observe(const BindingLoad& load, const OwningTerms& terms, Time now);
  // Whether it is to own from now on. `may_change`: no more functions have changed lately than may.
  bool Decide(Time now, bool may_change);

  [[nodiscard]] OwningRule rule() const { return rule_; }
  [[nodiscard]] bool owns() const { return owns_; }
  [[nodiscard]] const BindingCosts& costs() const { return costs_; }
  // Both costs, and what they follow from, in words and numbers.
  [[nodiscard]] std::string Why() const;
  // The same when it changed for the last time.
  [[nodiscard]] const std::string& because() const { return because_; }

 private:
  [[nodiscard]] double Remembered(Time now) const;
  void Change(bool owns, Time now);

  OwningRule rule_;
  bool owns_;
  Time changed_{};
  std::string because_;
  BindingLoad seen_;  // since it changed; each look counts for less with time
  BindingCosts costs_;
  // Of binding late, in parts of what its runs take, when it was bound late for the last time.
  double overhead_ = 0;
  Duration remembered_ = kRemembered;
  std::optional<Time> left_{};  // when it went from owning to late binding, for the trial that is under way
};

}  // namespace troupe::cluster
