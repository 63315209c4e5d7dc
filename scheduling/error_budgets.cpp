#include "scheduling/error_budgets.hpp"

namespace troupe {

namespace {

// With more all begin anew: what is not known is not given up.
constexpr std::size_t kMostCountedFunctions = 65'536;
constexpr double kBeyond = 1.5;

}  // namespace

void ErrorBudgets::Ended(const std::string& function, double percentile, bool in_time) {
  if (functions_.size() >= kMostCountedFunctions && !functions_.contains(function)) functions_.clear();
  functions_[function].Add(percentile, in_time);
}

bool ErrorBudgets::IsSpent(const std::string& function) const {
  const auto it = functions_.find(function);
  if (it == functions_.end()) return false;
  const SloCount& count = it->second;
  const double may_be_late = (1 - count.percentile / 100) * static_cast<double>(count.ended);
  return static_cast<double>(count.ended - count.in_time) > kFewLate + kBeyond * may_be_late;
}

}  // namespace troupe
