// Runs that are longer than their function's run limit, in a cluster under virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

FakeWorkerProfile RunsOf(Duration run) {
  FakeWorkerProfile profile;
  profile.run = run;
  return profile;
}

auto WithLimit(Duration limit) {
  return [limit](proto::DeployRequest& wish) { wish.set_run_limit_ns(limit.count()); };
}

std::size_t Cuts(const World& world) {
  return static_cast<std::size_t>(std::count_if(world.events.begin(), world.events.end(),
                                                [](const auto& event) { return event.first == "run-cut"; }));
}

TEST(RunLimits, ARunBeyondADeclaredLimitIsCutAndNotTriedAgain) {
  World world(2, 2, RunsOf(milliseconds(100)));
  ASSERT_TRUE(world.Deploy("long", MiB(20), milliseconds(100), {"x"}, {}, WithLimit(milliseconds(50))).ok());
  world.Infer("long", 1);
  world.Run(seconds(5));
  ASSERT_EQ(world.answers.size(), 1u);
  const proto::InferReply& reply = world.answers[0].reply;
  EXPECT_EQ(reply.code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(reply.attempts(), 1u);
  for (const char* part : {"'long'", "100", "50", "declared", "run_limit"})
    EXPECT_THAT(reply.message(), HasSubstr(part));
  EXPECT_EQ(Cuts(world), 1u);
  std::uint64_t runs = 0;
  for (const char* node : {"node-1", "node-2"}) {
    for (const auto& worker : world.node(node).workers) {
      EXPECT_EQ(worker->spawns, 1u) << "a run that was cut counts as a failure of the worker";
      runs += worker->runs;
    }
  }
  EXPECT_EQ(runs, 0u);
}

TEST(RunLimits, ARunWithinALargerDeclaredLimitIsServed) {
  World world(1, 1, RunsOf(seconds(12)));
  ASSERT_TRUE(world.Deploy("long", MiB(20), milliseconds(100), {"x"}, {}, WithLimit(seconds(20))).ok());
  world.Infer("long", 1, seconds(60));
  world.Run(seconds(60));
  ASSERT_EQ(world.answers.size(), 1u);
  EXPECT_EQ(world.answers[0].reply.code(), 0) << world.answers[0].reply.message();
  EXPECT_EQ(Cuts(world), 0u);
}

TEST(RunLimits, AFunctionThatDeclaresNothingHasOneTooAndItsNeighbourIsServed) {
  World world(1, 1, RunsOf(seconds(11)));
  ASSERT_TRUE(world.Deploy("hostile", MiB(20)).ok());
  ASSERT_TRUE(world.Deploy("quick", MiB(20), milliseconds(100), {"x"}, {}, WithLimit(seconds(30))).ok());
  world.Infer("hostile", 1, seconds(60));
  world.Infer("quick", 2, seconds(60));
  world.Run(seconds(90));
  ASSERT_EQ(world.answers.size(), 2u);
  for (const auto& answer : world.answers) {
    const auto code = answer.call == 1 ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kOk;
    EXPECT_EQ(answer.reply.code(), static_cast<int>(code)) << answer.reply.message();
  }
  EXPECT_EQ(Cuts(world), 1u);
}

TEST(RunLimits, ALimitThatMakesNoSenseIsRefused) {
  World world(1, 1);
  for (const Duration limit : {Duration(-1), Duration(1), Duration(std::chrono::hours(2))}) {
    const absl::Status status = world.Deploy("net", MiB(20), milliseconds(100), {"x"}, {}, WithLimit(limit));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("run limit"));
  }
}

}  // namespace
}  // namespace troupe::actors
