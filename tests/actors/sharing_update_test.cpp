// How a function shares its GPUs, changed while it is served, in a whole cluster under virtual time: which runs obey, and
// what outlives which process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/actors/cluster_events.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

class SharingUpdate : public ::testing::Test {
 protected:
  SharingUpdate() : world_(1) {
    EXPECT_TRUE(world_
                    .Deploy("f", MiB(10), milliseconds(100), {"x"}, {},
                            [](auto& deploy) { deploy.mutable_sharing()->set_sm_partition(24); })
                    .ok());
  }

  absl::StatusOr<proto::AdminReply> Update(std::uint32_t percent, std::uint32_t instances = 0) {
    proto::AdminRequest request;
    auto& update = *request.mutable_update_function();
    update.mutable_key()->set_name("f");
    update.mutable_sharing()->set_sm_partition(percent);
    update.mutable_sharing()->set_max_instances(instances);
    update.add_settings("sm_partition");
    update.add_settings("max_instances");
    return world_.Ask(request);
  }
  void Send(std::size_t requests) {
    for (std::size_t i = 0; i < requests; ++i) world_.Infer("f", ++calls_);
  }
  [[nodiscard]] FakeWorkerControl& worker() { return *world_.node("node-1").workers[0]; }

  World world_;
  std::uint64_t calls_ = 0;
};

TEST_F(SharingUpdate, TheNextRunObeysAndNoRequestIsDropped) {
  Send(3);
  world_.ExpectAnswers();
  EXPECT_THAT(world_.TakeShares(), ElementsAre(24));
  const auto starts = worker().spawns;
  const auto swaps = worker().swaps;
  Send(20);
  world_.Run(milliseconds(2));
  const auto reply = Update(50, 2);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->functions(0).record().key().version(), "1");
  EXPECT_EQ(reply->functions(0).sharing_size(), 6);
  Send(20);
  world_.ExpectAnswers();
  world_.TakeShares();
  Send(3);
  world_.ExpectAnswers();
  EXPECT_THAT(world_.TakeShares(), ElementsAre(50));
  EXPECT_EQ(worker().spawns, starts) << "no worker was started again";
  EXPECT_EQ(worker().swaps, swaps) << "nothing was loaded again";
  EXPECT_THAT(MessagesOfKind(world_, "function-updated"),
              ElementsAre("function 'f' version 1: sm_partition 50%, max_instances 2"));
}

TEST_F(SharingUpdate, OutlivesTheManagerAndIsObeyedWithoutIt) {
  ASSERT_TRUE(Update(50).ok());
  world_.StopManager();
  world_.TakeShares();
  Send(2);
  world_.ExpectAnswers();
  EXPECT_THAT(world_.TakeShares(), ElementsAre(50));
  world_.StartManager();
  world_.Run(seconds(3));
  Send(2);
  world_.ExpectAnswers();
  EXPECT_THAT(world_.TakeShares(), ElementsAre(50));
  ASSERT_TRUE(Update(0).ok());
  Send(2);
  world_.ExpectAnswers();
  EXPECT_THAT(world_.TakeShares(), ElementsAre(0)) << "all SMs";
}

TEST_F(SharingUpdate, WhatIsRefusedChangesNothing) {
  const auto refused = Update(50, 3).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("give 2 instances at most"));
  world_.TakeShares();
  Send(2);
  world_.ExpectAnswers();
  EXPECT_THAT(world_.TakeShares(), ElementsAre(24));
}

}  // namespace
}  // namespace troupe::actors
