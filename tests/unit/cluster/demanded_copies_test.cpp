#include "cluster/copies/demanded_copies.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace troupe::cluster::demanded_copies_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DemandedCopiesTest : public ::testing::Test {
 protected:
  // So many GPUs are busy with the model for so long, told every 100 ms; the numbers that it had on the way, each
  // once.
  std::vector<std::uint32_t> Load(const std::string& model, double busy, Duration length) {
    std::vector<std::uint32_t> numbers;
    for (const Time end = now_ + length; now_ < end;) {
      now_ += milliseconds(100);
      copies_.Ran(model, FromSeconds(busy / 10), now_);
      for (const auto& changed : copies_.Update(gpus_, now_)) numbers.push_back(copies_.Of(changed));
    }
    return numbers;
  }

  Time now_{seconds(1000)};
  double gpus_ = 1;
  DemandedCopies copies_{ReplicaPolicy::kDemand};
};

// Loads that both policies see at the same time, told every 100 ms.
class ForecastCopiesTest : public ::testing::Test {
 protected:
  void Load(double busy, Duration length, double growth_per_second = 0) {
    for (const Time end = now_ + length; now_ < end; busy += growth_per_second / 10) {
      now_ += milliseconds(100);
      for (auto* copies : {&forecast_, &demand_}) {
        copies->Ran("m", FromSeconds(busy / 10), now_);
        copies->Update(1, now_);
      }
      Count(busy);
    }
  }
  // Seconds in which the load was more than the nodes had GPUs, of which each copy serves from 5 s after it was ordered.
  void Count(double busy) {
    ordered_.push_back({forecast_.Of("m"), demand_.Of("m")});
    const auto& serving = ordered_[ordered_.size() < 50 ? 0 : ordered_.size() - 50];
    forecast_short_ += busy > serving.first ? 0.1 : 0;
    demand_short_ += busy > serving.second ? 0.1 : 0;
    most_ = std::max(most_, forecast_.Of("m"));
  }

  Time now_{seconds(1000)};
  DemandedCopies forecast_{ReplicaPolicy::kForecast};
  DemandedCopies demand_{ReplicaPolicy::kDemand};
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ordered_;
  double forecast_short_ = 0;
  double demand_short_ = 0;
  std::uint32_t most_ = 1;
};

TEST_F(ForecastCopiesTest, CopiesComeBeforeALoadThatGrows) {
  Load(0.5, seconds(60));
  Load(0.5, seconds(60), 0.2);  // to 12.5 GPUs
  EXPECT_LT(forecast_short_, demand_short_ / 3);
  EXPECT_GT(demand_short_, 20) << "the load outruns what it was lately";
}

TEST_F(ForecastCopiesTest, ALoadThatStaysHasAsManyAsItNeeds) {
  Load(2, seconds(200));
  EXPECT_EQ(forecast_.Of("m"), demand_.Of("m"));
  EXPECT_EQ(forecast_.Of("m"), 3U);
}

TEST_F(ForecastCopiesTest, AfterAStepThereAreNotMuchMoreThanItNeeds) {
  Load(2, seconds(60));
  Load(20, seconds(60));
  EXPECT_LE(most_, 29U * 3 / 2) << "29 are needed";
  Load(0.1, seconds(300));
  EXPECT_EQ(forecast_.Of("m"), 1U);
}

TEST_F(DemandedCopiesTest, AModelThatOneNodeCanServeNeedsOneCopy) {
  EXPECT_EQ(copies_.Of("m"), 1U);
  EXPECT_THAT(Load("m", 0.6, seconds(300)), IsEmpty());
  EXPECT_EQ(copies_.Of("m"), 1U);
}

TEST_F(DemandedCopiesTest, CopiesGrowWithTheLoadAndAtOnce) {
  EXPECT_THAT(Load("m", 2.0, seconds(60)), ElementsAre(2, 3));
  // A step to ten times as much shows within the half-life.
  Load("m", 20.0, seconds(5));
  EXPECT_GE(copies_.Of("m"), 10U);
  Load("m", 20.0, seconds(60));
  EXPECT_EQ(copies_.Of("m"), 29U);
}

TEST_F(DemandedCopiesTest, NodesOfSeveralGpusNeedFewer) {
  gpus_ = 4;
  Load("m", 20.0, seconds(120));
  EXPECT_EQ(copies_.Of("m"), 8U);
}

TEST_F(DemandedCopiesTest, AModelThatUsesUpItsCopiesGetsMoreUntilItDoesNot) {
  // The demand is four GPUs; what runs is bounded by the copies that are there.
  for (int minute = 0; minute < 5; ++minute) Load("m", std::min<double>(4, copies_.Of("m")), seconds(60));
  EXPECT_EQ(copies_.Of("m"), 6U);
}

TEST_F(DemandedCopiesTest, WhatIsForeseenCountsAtOnceAndStaysForAMinute) {
  copies_.Foreseen("m", 3);
  copies_.Foreseen("m", 2);
  EXPECT_THAT(copies_.Update(gpus_, now_), ElementsAre("m"));
  EXPECT_EQ(copies_.Of("m"), 3U);
  EXPECT_THAT(Load("m", 0.5, seconds(59)), IsEmpty());
  EXPECT_THAT(Load("m", 0.5, seconds(4)), ElementsAre(1));
  DemandedCopies fixed(ReplicaPolicy::kFixed);
  fixed.Foreseen("m", 3);
  EXPECT_THAT(fixed.Update(gpus_, now_), IsEmpty());
}

TEST_F(DemandedCopiesTest, CopiesStayForAMinuteWithoutNeed) {
  Load("m", 3.0, seconds(60));
  ASSERT_EQ(copies_.Of("m"), 5U);
  // A load that comes back every half minute keeps them.
  for (int times = 0; times < 10; ++times) {
    Load("m", 0.1, seconds(20));
    Load("m", 3.0, seconds(40));
    EXPECT_EQ(copies_.Of("m"), 5U);
  }
  EXPECT_THAT(Load("m", 0.1, seconds(60)), IsEmpty());
  EXPECT_THAT(Load("m", 0.1, seconds(180)), ::testing::Contains(1U));
  EXPECT_EQ(copies_.Of("m"), 1U);
}

TEST_F(DemandedCopiesTest, AModelThatIsNotAskedForAnyMoreLosesThemToo) {
  Load("m", 3.0, seconds(60));
  for (int i = 0; i < 1500 && copies_.Of("m") > 1; ++i) {
    now_ += milliseconds(100);
    copies_.Update(gpus_, now_);
  }
  EXPECT_THAT(copies_.changed(), ElementsAre("m"));
  EXPECT_EQ(copies_.Of("m"), 1U);
}

TEST_F(DemandedCopiesTest, NumbersThatMakeNoSenseDoNoHarm) {
  copies_.Ran("m", Duration(-5), now_);
  copies_.Ran("m", Duration::max(), now_);
  EXPECT_THAT(copies_.Update(0, now_), ElementsAre("m"));
  EXPECT_LE(copies_.Of("m"), 1'000'000U);
}

TEST(DemandedCopies, AFixedNumberIsWhatThePolicySays) {
  DemandedCopies copies(ReplicaPolicy::kFixed);
  copies.Ran("m", seconds(1000), Time(seconds(1)));
  EXPECT_THAT(copies.Update(1, Time(seconds(1))), IsEmpty());
  EXPECT_EQ(copies.Of("m"), 1U);
  EXPECT_FALSE(FindReplicaPolicy("some").ok());
}

}  // namespace
}  // namespace troupe::cluster::demanded_copies_test
