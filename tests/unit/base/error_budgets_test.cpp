#include "base/error_budgets.hpp"

#include <gtest/gtest.h>

namespace troupe::error_budgets_test {
namespace {

void End(ErrorBudgets& budgets, int requests, bool in_time, double percentile = 98,
         const char* function = "f") {
  for (int i = 0; i < requests; ++i) budgets.Ended(function, percentile, in_time);
}

TEST(ErrorBudgets, OneOfFiftyMayBeLate) {
  ErrorBudgets budgets;
  EXPECT_FALSE(budgets.HasLeft("f"));
  End(budgets, 48, true);
  EXPECT_FALSE(budgets.HasLeft("f"));
  End(budgets, 1, true);
  EXPECT_TRUE(budgets.HasLeft("f"));
  End(budgets, 1, false);
  EXPECT_FALSE(budgets.HasLeft("f"));
  End(budgets, 48, true);
  EXPECT_FALSE(budgets.HasLeft("f"));
  End(budgets, 1, true);
  EXPECT_TRUE(budgets.HasLeft("f")) << "two of a hundred";
}

TEST(ErrorBudgets, EachFunctionHasItsOwnByItsPercentile) {
  ErrorBudgets budgets;
  End(budgets, 60, true, 0, "usual");
  End(budgets, 60, true, 99, "strict");
  End(budgets, 60, true, 50, "easy");
  End(budgets, 60, true, 100, "always");
  End(budgets, 20, false, 50, "easy");
  EXPECT_TRUE(budgets.HasLeft("usual"));
  EXPECT_FALSE(budgets.HasLeft("strict"));
  EXPECT_TRUE(budgets.HasLeft("easy"));
  EXPECT_FALSE(budgets.HasLeft("always"));
}

TEST(ErrorBudgets, WhatWasLongAgoWeighsLess) {
  ErrorBudgets budgets;
  End(budgets, 3'000, false);
  End(budgets, 100'000, true);
  EXPECT_FALSE(budgets.HasLeft("f"));
  End(budgets, 100'000, true);
  EXPECT_TRUE(budgets.HasLeft("f"));
}

TEST(ErrorBudgets, WithTooManyFunctionsAllBeginAnew) {
  ErrorBudgets budgets;
  End(budgets, 100, true);
  for (int i = 0; i < 65'535; ++i) budgets.Ended("g" + std::to_string(i), 98, true);
  EXPECT_TRUE(budgets.HasLeft("f"));
  budgets.Ended("one more", 98, true);
  EXPECT_FALSE(budgets.HasLeft("f"));
}

}  // namespace
}  // namespace troupe::error_budgets_test
