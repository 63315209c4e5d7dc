#include "scheduling/error_budgets.hpp"

#include <gtest/gtest.h>

namespace troupe::error_budgets_test {
namespace {

void End(ErrorBudgets<std::string>& budgets, int requests, bool in_time, double percentile = 98,
         const char* function = "f") {
  for (int i = 0; i < requests; ++i) budgets.Ended(function, percentile, in_time);
}

TEST(ErrorBudgets, AFewLateRequestsSpendNoBudget) {
  ErrorBudgets<std::string> budgets;
  EXPECT_FALSE(budgets.IsSpent("f"));
  End(budgets, ErrorBudgets<std::string>::kFewLate, false);
  EXPECT_FALSE(budgets.IsSpent("f"));
  End(budgets, 1, false);
  EXPECT_TRUE(budgets.IsSpent("f"));
  EXPECT_FALSE(budgets.IsSpent("g"));
}

TEST(ErrorBudgets, AFunctionThatIsServedInTimeLongEnoughHasABudgetAgain) {
  ErrorBudgets<std::string> budgets;
  End(budgets, 16, false);
  End(budgets, 183, true);
  EXPECT_TRUE(budgets.IsSpent("f"));  // four of two hundred may be late: half as many again, and ten, are 16
  End(budgets, 2, true);
  EXPECT_FALSE(budgets.IsSpent("f"));
}

TEST(ErrorBudgets, ItIsByThePercentile) {
  ErrorBudgets<std::string> budgets;
  for (const auto& [function, percentile] : {std::pair("usual", 0.0), {"strict", 99.0}, {"easy", 90.0}}) {
    End(budgets, 980, true, percentile, function);
    End(budgets, 30, false, percentile, function);
  }
  EXPECT_FALSE(budgets.IsSpent("usual"));
  EXPECT_TRUE(budgets.IsSpent("strict"));
  EXPECT_FALSE(budgets.IsSpent("easy"));
}

TEST(ErrorBudgets, WhatWasLongAgoWeighsLess) {
  ErrorBudgets<std::string> budgets;
  End(budgets, 5'000, false);
  End(budgets, 100'000, true);
  EXPECT_TRUE(budgets.IsSpent("f"));
  End(budgets, 100'000, true);
  EXPECT_FALSE(budgets.IsSpent("f"));
}

TEST(ErrorBudgets, WithTooManyFunctionsAllBeginAnew) {
  ErrorBudgets<std::string> budgets;
  End(budgets, 100, false);
  for (int i = 0; i < 65'535; ++i) budgets.Ended("g" + std::to_string(i), 98, true);
  EXPECT_TRUE(budgets.IsSpent("f"));
  budgets.Ended("one more", 98, true);
  EXPECT_FALSE(budgets.IsSpent("f"));
}

}  // namespace
}  // namespace troupe::error_budgets_test
