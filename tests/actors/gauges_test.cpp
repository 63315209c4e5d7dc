// What the daemon's metrics say of themselves.
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

}  // namespace
}  // namespace troupe::actors
