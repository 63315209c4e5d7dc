#include "scheduling/run_profile.hpp"

#include <gtest/gtest.h>

#include "scheduling/cost_model.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

// A model that saturates at half of the GPU.
RunProfile HalfSaturated() {
  RunProfile profile;
  profile.Add(25, 1, milliseconds(20));
  profile.Add(50, 1, milliseconds(10));
  profile.Add(100, 1, milliseconds(10));
  profile.Add(100, 4, milliseconds(16));
  return profile;
}

double Milliseconds(std::optional<Duration> run) {
  return run ? ToSeconds(*run) * 1e3 : -1;
}

TEST(RunProfile, RatesAreLinearBetweenSharesAndInProportionBelowThem) {
  const auto profile = HalfSaturated();
  EXPECT_NEAR(Milliseconds(profile.RunTime(25, 1)), 20, 1e-3);
  EXPECT_NEAR(Milliseconds(profile.RunTime(40, 1)), 12.5, 1e-3);
  EXPECT_NEAR(Milliseconds(profile.RunTime(5, 1)), 100, 1e-3);
  EXPECT_NEAR(Milliseconds(profile.RunTime(80, 1)), 10, 1e-3);
}

TEST(RunProfile, BatchesBetweenMeasuredOnesAreLinearAndOthersAreNotKnown) {
  const auto profile = HalfSaturated();
  EXPECT_NEAR(Milliseconds(profile.RunTime(100, 2)), 12, 1e-3);
  EXPECT_NEAR(Milliseconds(profile.RunTime(100, 4)), 16, 1e-3);
  EXPECT_FALSE(profile.RunTime(100, 5));
  EXPECT_FALSE(RunProfile().RunTime(100, 1));
  RunProfile large;
  large.Add(100, 4, milliseconds(16));
  EXPECT_FALSE(large.RunTime(100, 1));
}

TEST(RunProfile, WhatIsZeroDoesNotCount) {
  RunProfile profile;
  profile.Add(0, 1, milliseconds(1));
  profile.Add(100, 0, milliseconds(1));
  profile.Add(100, 1, Duration());
  EXPECT_TRUE(profile.empty());
}

// --- a profile in the cost model ---

TEST(ProfiledCosts, AProfileCountsForMoreThanWhatWasLearned) {
  CostModel costs;
  const auto model = costs.Hold("m");
  costs.ObserveRun(model, milliseconds(30));
  EXPECT_EQ(costs.RunTime(model), milliseconds(30));
  costs.SetProfiled("m", milliseconds(10));
  EXPECT_EQ(costs.RunTime(model), milliseconds(10));
  EXPECT_EQ(costs.RunTime("m"), milliseconds(10));
  costs.SetProfiled("m", Duration());
  EXPECT_EQ(costs.RunTime(model), milliseconds(30)) << "what was learned is still there";
}

TEST(ProfiledCosts, AModelThatIsNotThereYetHasItsProfileWhenItComes) {
  CostModel costs;
  costs.SetProfiled("m", milliseconds(4));
  EXPECT_EQ(costs.RunTime("m"), milliseconds(4));
  EXPECT_EQ(costs.RunTime(costs.Hold("m")), milliseconds(4));
}

TEST(ProfiledCosts, ModelsAreHeavyOrLightByTheirProfile) {
  CostModel costs;  // 6 GB/s: 600 MB take 100 ms
  const auto model = costs.Hold("m");
  const Bytes weights(600'000'000);
  costs.ObserveRun(model, milliseconds(200));
  EXPECT_FALSE(costs.Heavy(model, weights));
  costs.SetProfiled("m", milliseconds(20));
  EXPECT_TRUE(costs.Heavy(model, weights)) << "the load does not hide behind so short a run";
  EXPECT_EQ(costs.SwapDelay(model, weights), milliseconds(80));
  costs.SetProfiled("m", milliseconds(500));
  EXPECT_FALSE(costs.Heavy(model, weights));
}

}  // namespace
}  // namespace troupe
