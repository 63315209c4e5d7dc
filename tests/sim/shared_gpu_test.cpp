// Functions that share one GPU under virtual time, by the worker's token scheduler.
#include "sim/shared_gpu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace troupe::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::Le;

// 20 ms on all SMs, and on the 32 of 132 that 24 % of them come to.
constexpr RunCost kCost{.time = milliseconds(20), .saturation = 32.0 / 132};

proto::GpuSharing Shares(std::uint32_t sm_partition, std::uint32_t request, std::uint32_t limit,
                         std::uint32_t instances) {
  proto::GpuSharing sharing;
  sharing.set_sm_partition(sm_partition);
  sharing.set_quota_request(request);
  sharing.set_quota_limit(limit);
  sharing.set_max_instances(instances);
  return sharing;
}

SharedGpuOutcome Share(const std::string& policy, std::vector<SharedFunction> functions) {
  auto outcome =
      ShareGpu({.policy = policy, .functions = std::move(functions), .length = seconds(20), .seed = 1});
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return *std::move(outcome);
}

SharedGpuOutcome ShareOne(const std::string& policy, const proto::GpuSharing& sharing,
                          std::uint32_t clients) {
  return Share(policy, {{.name = "f", .sharing = sharing, .cost = kCost, .clients = clients}});
}

TEST(SharedGpu, OneRunAtATimeUnlessTheSmsAreShared) {
  for (const char* policy : {"time-sharing", "exclusive"}) {
    const auto outcome = ShareOne(policy, Shares(24, 0, 0, 0), 8);
    EXPECT_EQ(outcome.functions[0].served, 1000U) << policy;
    EXPECT_DOUBLE_EQ(outcome.computing, 1) << policy;
  }
  const auto shared = ShareOne("fast", Shares(24, 0, 0, 0), 8);
  EXPECT_EQ(shared.functions[0].served, 4000U);  // four places of 24 %
  EXPECT_NEAR(shared.sms, 128.0 / 132, 1e-9);
}

TEST(SharedGpu, RacingRunsTakeTurnsOnAllSms) {
  const auto outcome = ShareOne("racing", Shares(24, 0, 0, 4), 4);
  EXPECT_EQ(outcome.functions[0].served, 1000U);
  EXPECT_THAT(outcome.functions[0].latencies, Each(milliseconds(80)));
}

TEST(SharedGpu, ARunPausesWhenItsWindowIsUsedUp) {
  constexpr RunCost kLong{.time = milliseconds(250), .saturation = 1};
  const auto outcome =
      Share("fast", {{.name = "f", .sharing = Shares(0, 30, 30, 0), .cost = kLong, .clients = 2}});
  EXPECT_EQ(outcome.functions[0].served, 24U);
  // A group of ten milliseconds may go beyond it.
  EXPECT_THAT(outcome.functions[0].in_windows, Each(Le(milliseconds(310))));
  EXPECT_THAT(ToSeconds(outcome.functions[0].computed), DoubleNear(6, 0.02));
}

TEST(SharedGpu, AnOverloadedNeighbourOnOtherSmsDoesNotMatter) {
  const SharedFunction function{.name = "f", .sharing = Shares(50, 0, 0, 1), .cost = kCost, .rate = 20};
  const SharedFunction neighbour{.name = "n", .sharing = Shares(50, 0, 0, 1), .cost = kCost, .rate = 200};
  const auto alone = Share("fast", {function}).functions[0].latencies;
  EXPECT_EQ(Share("fast", {function, neighbour}).functions[0].latencies, alone);
  const auto racing = Share("racing", {function, neighbour}).functions[0].latencies;
  EXPECT_GT(*std::ranges::max_element(racing), *std::ranges::max_element(alone));
}

TEST(SharedGpu, WhatIsNotServedHasWaited) {
  const SharedFunction neighbour{.name = "n", .sharing = Shares(0, 0, 0, 1), .cost = kCost, .clients = 4};
  const SharedFunction starved{.name = "f", .sharing = Shares(0, 0, 0, 1), .cost = kCost, .clients = 1};
  const auto outcome = Share("exclusive", {neighbour, starved});
  EXPECT_EQ(outcome.functions[1].served, 0U);
  EXPECT_THAT(outcome.functions[1].latencies, ::testing::ElementsAre(seconds(20)));
}

TEST(SharedGpu, APolicyThatIsNotThere) {
  EXPECT_EQ(ShareGpu({.policy = "faster", .functions = {}, .length = seconds(1)}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace troupe::sim
