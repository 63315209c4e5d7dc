#include "cluster/demand_table.hpp"

#include <gtest/gtest.h>

namespace troupe::cluster::demand_table_test {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

TEST(DemandTable, WhatWasAskedForFadesAndAddsUp) {
  DemandTable demand(seconds(60));
  const Time begin(hours(1));
  EXPECT_EQ(demand.Of("a", begin), 0);
  demand.Add("a", 8, begin);
  demand.Add("b", 5, begin);
  EXPECT_DOUBLE_EQ(demand.Of("a", begin), 8);
  EXPECT_DOUBLE_EQ(demand.Of("a", begin + seconds(60)), 4);
  demand.Add("a", 2, begin + seconds(120));
  EXPECT_DOUBLE_EQ(demand.Of("a", begin + seconds(120)), 4);
  EXPECT_DOUBLE_EQ(demand.Of("b", begin + seconds(120)), 1.25);
  EXPECT_DOUBLE_EQ(demand.Of("a", begin), 4) << "a clock that goes back does not raise the demand";
}

TEST(DemandTable, AModelWithoutRequestsIsForgotten) {
  DemandTable demand(seconds(60));
  const Time begin(hours(1));
  for (int i = 0; i < 1000; ++i) demand.Add("m" + std::to_string(i), 1, begin);
  EXPECT_EQ(demand.size(), 1000u);
  demand.Add("a", 1, begin + seconds(600));
  EXPECT_EQ(demand.size(), 1u);
}

}  // namespace
}  // namespace troupe::cluster::demand_table_test
