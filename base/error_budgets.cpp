#include "base/error_budgets.hpp"

#include "base/slo_order.hpp"

namespace troupe {

namespace {

// With more all begin anew: what is not known is not given up.
constexpr std::size_t kMostFunctions = 65'536;
// Counts are halved past this, so that what a function was like long ago weighs less and less.
constexpr std::uint32_t kLongestHistory = 100'000;
constexpr double kBeyond = 1.5;

}  // namespace

void ErrorBudgets::Ended(const std::string& function, double percentile, bool in_time) {
  if (functions_.size() >= kMostFunctions && !functions_.contains(function)) functions_.clear();
  Count& count = functions_[function];
  count.may_be_late = 1 - (percentile > 0 ? percentile : kDefaultSloPercentile) / 100;
  ++count.ended;
  count.late += in_time ? 0 : 1;
  if (count.ended <= kLongestHistory) return;
  count.ended /= 2;
  count.late /= 2;
}

bool ErrorBudgets::IsSpent(const std::string& function) const {
  const auto it = functions_.find(function);
  if (it == functions_.end()) return false;
  const Count& count = it->second;
  return count.late > kFewLate + kBeyond * count.may_be_late * count.ended;
}

}  // namespace troupe
