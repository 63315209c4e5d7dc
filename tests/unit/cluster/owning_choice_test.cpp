// Whether a function owns parts of GPUs or is bound late, by what each costs.
#include "cluster/autoscaling/owning_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cluster/autoscaling/scaled_functions.hpp"

namespace troupe::cluster::owning_choice_test {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

// An SLO by the 98th percentile, instances that are to be used for 70 %, parts of a tenth of a GPU.
constexpr OwningTerms kTerms = {.late_allowed = 0.02, .utilisation = 0.7, .smallest_part = 0.1};

class Choice : public testing::Test {
 protected:
  // A second with 50 requests; `gpu`: the part of it that runs had a GPU.
  bool Second(double gpu, double late = 0, double swapping = 0, double ended = 50) {
    now_ += seconds(1);
    choice_.Observe({.seconds = 1, .ended = ended, .late = late, .swapping = swapping, .gpu_seconds = gpu},
                    kTerms, now_);
    return choice_.Decide(now_, may_change_);
  }
  // How many seconds pass until it decides otherwise; `most` when it does not.
  int SecondsUntil(bool owns, int most, double gpu, double late = 0, double swapping = 0) {
    for (int second = 1; second <= most; ++second)
      if (Second(gpu, late, swapping) == owns) return second;
    return most;
  }

  OwningChoice choice_{OwningRule::kByCost};
  bool may_change_ = true;

 private:
  Time now_{seconds(1000)};
};

TEST_F(Choice, AFunctionThatIsInTimeWithoutSwapsStaysLate) {
  EXPECT_EQ(SecondsUntil(true, 600, 0.5), 600);
  EXPECT_NEAR(choice_.costs().late, 0.5, 1e-9);
  EXPECT_NEAR(choice_.costs().owning, 0.8, 1e-9) << "0.5 at 70 % are 0.71, in parts of a tenth";
}

TEST_F(Choice, RequestsThatAreLateForSwapsMakeItOwn) {
  EXPECT_EQ(SecondsUntil(true, 600, 0.5, 0.5), 600)
      << "1 % late for swaps costs half of its runs: 0.75 beside 0.8";
  // 4 % of 50 are late: that costs twice its runs, 1.5 beside 0.8.
  EXPECT_LT(SecondsUntil(true, 600, 0.5, 2), 10);
}

TEST_F(Choice, SwapsMakeItOwn) {
  // Its requests wait for swaps as long as its runs take.
  EXPECT_LT(SecondsUntil(true, 600, 0.5, 0, 0.5), 5);
  EXPECT_THAT(choice_.because(), HasSubstr("they wait for swaps 0.50 s each second"));
  EXPECT_THAT(choice_.because(),
              HasSubstr("owning parts of GPUs would cost 0.80 of a GPU, and binding late costs 1.00"));
}

TEST_F(Choice, AFunctionOfFewRunsPaysTheSmallestPart) {
  // It is always late; and yet a tenth of a GPU is more than what that costs.
  EXPECT_EQ(SecondsUntil(true, 600, 0.001, 50, 0.02), 600);
  EXPECT_NEAR(choice_.costs().owning, 0.1, 1e-9);
}

TEST_F(Choice, FewRequestsSayNothing) {
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(Second(0.01, 0.1, 10, 0.1)) << i;
  EXPECT_THAT(choice_.Why(), HasSubstr("too few requests"));
}

TEST_F(Choice, WhatItOwnsItOwnsForAWhileAndThenItTriesToDoWithout) {
  SecondsUntil(true, 600, 0.5, 2);
  ASSERT_TRUE(choice_.owns());
  const int first = SecondsUntil(false, 3600, 0.5);
  EXPECT_GE(first, 60);
  EXPECT_LT(first, 3600);
  // The trial fails, so that the next one is later.
  EXPECT_LT(SecondsUntil(true, 600, 0.5, 2), 10);
  const int second = SecondsUntil(false, 7200, 0.5);
  EXPECT_NEAR(second, 2 * first, 0.1 * first);
  // This one is a success for long: the next failure begins anew.
  EXPECT_EQ(SecondsUntil(true, 3600, 0.5), 3600);
  SecondsUntil(true, 600, 0.5, 2);
  EXPECT_LE(SecondsUntil(false, 3600, 0.5), first);
}

TEST_F(Choice, ALoadThatFallsToAFewRunsGivesItsPartsBackSooner) {
  SecondsUntil(true, 600, 0.5, 5);
  // A tenth of a GPU for one hundredth that it uses.
  EXPECT_NEAR(SecondsUntil(false, 3600, 0.01), 60, 2) << "after the time for which it stays";
}

TEST_F(Choice, WhenTooManyChangedItWaits) {
  may_change_ = false;
  EXPECT_EQ(SecondsUntil(true, 100, 0.5, 5), 100);
  may_change_ = true;
  EXPECT_TRUE(Second(0.5, 5));
}

TEST_F(Choice, WhatIsFoundToOwnDoesSoForSomeMinutes) {
  choice_.TakeOver(Time(seconds(1000)));
  const int kept = SecondsUntil(false, 3600, 0.5);
  EXPECT_GE(kept, 60);
  EXPECT_LT(kept, 3600);
}

TEST_F(Choice, OtherRulesDoNotAskForCosts) {
  choice_ = OwningChoice(OwningRule::kAlways);
  EXPECT_EQ(SecondsUntil(false, 600, 0.01), 600);
  choice_.Rested();
  EXPECT_TRUE(Second(0.01));
  choice_ = OwningChoice(OwningRule::kNever);
  choice_.TakeOver(Time(seconds(1000)));
  EXPECT_EQ(SecondsUntil(true, 600, 0.5, 50, 10), 600);
  EXPECT_THAT(FindOwningRule("sometimes").status().message(), HasSubstr("by-cost"));
}

TEST(ScaledFunctions, SoManyFunctionsChangeWithinAMinuteAndTheOthersWait) {
  ScaledFunctions functions(seconds(1));
  std::map<std::string, FunctionLoad> loads;
  for (int i = 0; i < 70; ++i) {
    ScaledFunction function;
    function.name = absl::StrCat("f", i);
    function.owning = "by-cost";
    function.kinds = {"any"};
    function.extents = {{.quota = 10, .sms = 100}};
    ASSERT_TRUE(functions.Add(function).ok());
    loads[function.name].binding = {.seconds = 1, .ended = 50, .late = 50, .gpu_seconds = 0.5};
  }
  RectangleTable table;
  InstanceId next = 1;
  const auto owning_at = [&](Time now) {
    std::vector<ScaleDecision> decisions;
    functions.Tick(loads, {.table = table, .next_id = next, .now = now, .ahead = {}, .decisions = decisions});
    int owning = 0;
    functions.ForEach([&](const FunctionScaler& scaler) { owning += scaler.owning().owns() ? 1 : 0; });
    return owning;
  };
  EXPECT_EQ(owning_at(Time(seconds(100))), 60);
  EXPECT_EQ(owning_at(Time(seconds(160))), 60);
  EXPECT_EQ(owning_at(Time(seconds(161))), 70);
}

}  // namespace
}  // namespace troupe::cluster::owning_choice_test
