// Versions that share the requests that name none, in a whole cluster: what gateways send where, and what outlives
// which process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "tests/actors/cluster_events.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

class Canary : public ::testing::Test {
 protected:
  // The function "f" has two versions of different models.
  Canary() : world_(2) {
    EXPECT_TRUE(world_.Deploy("f", MiB(10)).ok());
    EXPECT_TRUE(
        world_
            .Deploy("f-2", MiB(20), milliseconds(100), {"x"}, {}, [](auto& deploy) { deploy.set_name("f"); })
            .ok());
  }

  absl::StatusOr<proto::AdminReply> Canaried(std::uint32_t percent) {
    return Ask([percent](auto& wish) {
      wish.mutable_canary()->set_version("2");
      wish.mutable_canary()->set_percent(percent);
    });
  }
  absl::StatusOr<proto::AdminReply> Ask(const std::function<void(proto::SplitFunction&)>& wish) {
    proto::AdminRequest request;
    request.mutable_split_function()->set_name("f");
    wish(*request.mutable_split_function());
    return world_.Ask(request);
  }
  // The versions that answer so many requests, in the order in which they were sent.
  std::string Versions(std::size_t requests) {
    const auto before = world_.answers.size();
    for (std::size_t i = 0; i < requests; ++i) {
      world_.Infer("f", ++calls_);
      world_.Run(milliseconds(1));
    }
    world_.Run(seconds(5));
    EXPECT_EQ(world_.answers.size(), before + requests);
    std::map<std::uint64_t, std::string> by_call;
    for (auto i = before; i < world_.answers.size(); ++i) {
      EXPECT_EQ(world_.answers[i].reply.code(), 0) << world_.answers[i].reply.message();
      by_call[world_.answers[i].call] = world_.answers[i].reply.function().version();
    }
    std::string versions;
    for (const auto& [call, version] : by_call) versions += version;
    return versions;
  }

  World world_;
  std::uint64_t calls_ = 0;
};

TEST_F(Canary, RequestsGoToVersionsByTheirShares) {
  EXPECT_EQ(Versions(4), "2222") << "the newest version answers at first";
  ASSERT_TRUE(Canaried(25).ok());
  EXPECT_EQ(Versions(8), "11211121");
  const auto many = Versions(200);
  EXPECT_EQ(std::count(many.begin(), many.end(), '2'), 50);
  ASSERT_TRUE(Ask([](auto& wish) { wish.set_promote(""); }).ok());
  EXPECT_EQ(Versions(4), "2222");
  ASSERT_TRUE(Ask([](auto& wish) { wish.set_roll_back(true); }).ok());
  EXPECT_EQ(Versions(4), "1111");
  EXPECT_THAT(MessagesOfKind(world_, "function-split"),
              ElementsAre("function 'f': version 1 gets 75 %, version 2 gets 25 %",
                          "function 'f': version 2 gets 100 %", "function 'f': version 1 gets 100 %"));
}

TEST_F(Canary, SharesOutliveTheManager) {
  ASSERT_TRUE(Canaried(50).ok());
  EXPECT_EQ(Versions(4), "1212");
  world_.StopManager();
  EXPECT_EQ(Versions(4), "1212") << "gateways know them without the manager";
  world_.StartManager();
  world_.Run(seconds(3));
  EXPECT_EQ(Versions(4), "1212");
  ASSERT_TRUE(Ask([](auto& wish) { wish.set_roll_back(true); }).ok()) << "the stable version is known too";
  EXPECT_EQ(Versions(4), "1111");
}

TEST_F(Canary, AVersionThatGetsRequestsIsNotRemoved) {
  ASSERT_TRUE(Canaried(25).ok());
  proto::AdminRequest removal;
  removal.mutable_remove()->mutable_key()->set_name("f");
  const auto refused = world_.Ask(removal).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(refused.message(), HasSubstr("function 'f' version 2 is a canary and gets 25 %"));
  EXPECT_EQ(Versions(4), "1121");
  ASSERT_TRUE(Ask([](auto& wish) { wish.set_roll_back(true); }).ok());
  EXPECT_TRUE(world_.Ask(removal).ok());
}

TEST_F(Canary, ANewVersionGetsNothingWhileOthersShare) {
  ASSERT_TRUE(Canaried(50).ok());
  proto::AdminRequest deploy;
  deploy.mutable_deploy()->set_name("f");
  deploy.mutable_deploy()->set_onnx_digest(world_.MakeModel("f", MiB(10)));
  const auto reply = world_.Ask(deploy, seconds(10));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->message(), HasSubstr("version 3 gets only requests that name it: version 1 gets 50 %"));
  EXPECT_EQ(Versions(4), "1212");
}

// A request keeps its version when its node dies, so that the shares stay exact.
TEST_F(Canary, SharesStayExactWhenANodeDies) {
  ASSERT_TRUE(Canaried(25).ok());
  for (std::size_t i = 0; i < 40; ++i) world_.Infer("f", ++calls_);
  world_.Run(milliseconds(2));
  world_.KillNode("node-1");
  world_.Run(seconds(12));
  ASSERT_EQ(world_.answers.size(), 40U);
  std::size_t canary = 0;
  std::size_t again = 0;
  for (const auto& answer : world_.answers) {
    EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
    canary += answer.reply.function().version() == "2";
    again += answer.reply.attempts() > 1;
  }
  EXPECT_GT(again, 0U) << "the node had requests when it died";
  EXPECT_EQ(canary, 10U);
}

}  // namespace
}  // namespace troupe::actors
