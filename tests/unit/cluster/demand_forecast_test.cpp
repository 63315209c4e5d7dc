#include "cluster/autoscaling/demand_forecast.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace troupe::cluster::demand_forecast_test {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

DemandForecast Named(const char* name) {
  return DemandForecast(FindForecast(name).value());
}

TEST(DemandForecast, OnARampThatRisesByTenASecondHoltSeesItGoOnAndLastDoesNot) {
  for (const auto& [name, expected] : {std::pair("last", 300.0), std::pair("holt", 320.0)}) {
    DemandForecast forecast = Named(name);
    EXPECT_EQ(forecast.Expected(seconds(2)), 0);
    for (int i = 0; i <= 30; ++i) forecast.Observe(10 * i, Time() + seconds(i));
    EXPECT_NEAR(forecast.Expected(seconds(2)), expected, 0.5) << name;
  }
}

TEST(DemandForecast, HoltFollowsABurstWithinSecondsAndNeverExpectsLessThanNothing) {
  DemandForecast forecast = Named("holt");
  for (int i = 0; i < 10; ++i) forecast.Observe(50, Time() + seconds(i));
  EXPECT_NEAR(forecast.Expected(seconds(2)), 50, 1e-9);
  forecast.Observe(140, Time() + seconds(10));
  forecast.Observe(230, Time() + seconds(11));
  EXPECT_GT(forecast.Expected(seconds(2)), 250);
  for (int i = 12; i < 20; ++i) forecast.Observe(0, Time() + seconds(i));
  EXPECT_GE(forecast.Expected(seconds(60)), 0);
}

TEST(DemandForecast, ATrendFromBeforeAGapSaysNothing) {
  DemandForecast forecast = Named("holt");
  for (int i = 0; i < 10; ++i) forecast.Observe(30 * i, Time() + seconds(i));
  EXPECT_GT(forecast.Expected(seconds(2)), 300);
  forecast.Observe(1, Time() + seconds(1200));
  EXPECT_NEAR(forecast.Expected(seconds(2)), 1, 1e-9);
}

TEST(DemandForecast, SeasonExpectsTheChangeOfTheDayBefore) {
  DemandForecast forecast = Named("season");
  const auto observe_day = [&](int day, double scale) {
    for (int hour = 0; hour < 24; ++hour)
      for (int slot = 0; slot < 12; ++slot)
        forecast.Observe(scale + (hour == 9 ? 100 : 20),
                         Time() + hours(24 * day + hour) + seconds(300 * slot));
  };
  observe_day(0, 0);
  for (int slot = 0; slot < 12; ++slot) forecast.Observe(30, Time() + hours(24 + 8) + seconds(300 * slot));
  // It is 08:55 of the second day, with 30/s instead of 20/s; at 09:00 there were 80/s more than at 08:55.
  EXPECT_NEAR(forecast.Expected(seconds(300)), 30 + 77, 1);
  EXPECT_NEAR(forecast.Expected(seconds(1)), 30, 1e-9);
}

TEST(DemandForecast, TheOracleSaysWhatItIsToldAndBadRatesCountAsNone) {
  DemandForecast forecast = Named("oracle");
  forecast.Observe(10, Time(), 500);
  EXPECT_EQ(forecast.Expected(seconds(2)), 500);
  forecast.Observe(10, Time() + seconds(1));
  EXPECT_EQ(forecast.Expected(seconds(2)), 10);
  for (const double bad :
       {-5.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    DemandForecast last = Named("last");
    last.Observe(bad, Time());
    EXPECT_EQ(last.Expected(seconds(1)), 0);
  }
  EXPECT_THAT(FindForecast("crystal-ball").status().message(), testing::HasSubstr("holt"));
}

TEST(DemandForecast, ObservationsAtOneTimeAreNoTrend) {
  DemandForecast forecast = Named("holt");
  forecast.Observe(10, Time());
  forecast.Observe(90, Time());
  EXPECT_EQ(forecast.Expected(seconds(5)), 90);
}

}  // namespace
}  // namespace troupe::cluster::demand_forecast_test
