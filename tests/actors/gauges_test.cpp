// The types and help texts of the daemon's metrics.
#include "actors/daemon/gauges.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

namespace troupe::actors {
namespace {

using testing::HasSubstr;
using testing::Not;

class GaugesTest : public ::testing::Test {
 protected:
  std::string Text() { return prometheus::TextSerializer().Serialize(registry_->Collect()); }

  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  Gauges gauges_{registry_};
};

TEST_F(GaugesTest, WhatIsCalledATotalIsACounter) {
  gauges_.Set("troupe_node_queue", "Waiting.", {{"node", "n"}}, 3);
  gauges_.Set("troupe_node_served_total", "Served.", {{"node", "n"}}, 5);
  EXPECT_THAT(Text(), HasSubstr("# TYPE troupe_node_queue gauge"));
  EXPECT_THAT(Text(), HasSubstr("# TYPE troupe_node_served_total counter"));
  EXPECT_THAT(Text(), HasSubstr("troupe_node_served_total{node=\"n\"} 5"));
  gauges_.Set("troupe_node_queue", "Waiting.", {{"node", "n"}}, 1);
  gauges_.Set("troupe_node_served_total", "Served.", {{"node", "n"}}, 7);
  EXPECT_THAT(Text(), HasSubstr("troupe_node_queue{node=\"n\"} 1"));
  EXPECT_THAT(Text(), HasSubstr("troupe_node_served_total{node=\"n\"} 7"));
}

TEST_F(GaugesTest, ACounterOfAWorkerThatWasStartedAgainBeginsAnew) {
  gauges_.Set("bytes_total", "Bytes.", {}, 9e15);
  gauges_.Set("bytes_total", "Bytes.", {}, 4);
  EXPECT_THAT(Text(), HasSubstr("bytes_total 4"));
}

TEST_F(GaugesTest, AFamilyThatIsListedAnewForgetsWhatIsNotThere) {
  gauges_.Set("members", "Members.", {{"state", "alive"}}, 1);
  gauges_.Clear("members");
  gauges_.Set("members", "Members.", {{"state", "dead"}}, 1);
  EXPECT_THAT(Text(), Not(HasSubstr("alive")));
  EXPECT_THAT(Text(), HasSubstr("members{state=\"dead\"} 1"));
}

TEST_F(GaugesTest, SeriesOfWhatIsGoneAreRemovedAndTheOthersGoOn) {
  for (const char* name : {"slo_share", "slo_total"})
    for (const char* function : {"gone", "stays"})
      gauges_.Set(name, "Of a function.", {{"function", function}}, 5);
  for (const char* name : {"slo_share", "slo_total", "never_set"})
    gauges_.Keep(name, {{{"function", "stays"}}});
  EXPECT_THAT(Text(), Not(HasSubstr("gone")));
  EXPECT_THAT(Text(), HasSubstr("slo_share{function=\"stays\"} 5"));
  EXPECT_THAT(Text(), HasSubstr("slo_total{function=\"stays\"} 5"));
  gauges_.Set("slo_total", "Of a function.", {{"function", "gone"}}, 1);
  EXPECT_THAT(Text(), HasSubstr("slo_total{function=\"gone\"} 1")) << "it is counted anew";
}

TEST_F(GaugesTest, AHistogramThatIsCountedElsewhereHasItsBuckets) {
  const auto set = [&](std::vector<double> counts, double sum) {
    gauges_.SetHistogram("swap_seconds", "Swaps.", {{"node", "n"}}, {0.1, 1}, counts, sum);
  };
  set({2, 0, 1}, 5.5);
  set({2, 3, 1}, 7);
  EXPECT_THAT(Text(), HasSubstr("# TYPE swap_seconds histogram"));
  EXPECT_THAT(Text(), HasSubstr("swap_seconds_count{node=\"n\"} 6"));
  EXPECT_THAT(Text(), HasSubstr("swap_seconds_sum{node=\"n\"} 7"));
  EXPECT_THAT(Text(), HasSubstr("swap_seconds_bucket{node=\"n\",le=\"1\"} 5"));
  EXPECT_THAT(Text(), HasSubstr("swap_seconds_bucket{node=\"n\",le=\"+Inf\"} 6"));
  set({0, 1, 0}, 0.5);  // the node began to count anew
  EXPECT_THAT(Text(), HasSubstr("swap_seconds_count{node=\"n\"} 1"));
  EXPECT_THAT(Text(), HasSubstr("swap_seconds_sum{node=\"n\"} 0.5"));
}

}  // namespace
}  // namespace troupe::actors
