// Functions that own parts of GPUs, in a whole cluster under virtual time: where their runs go, and what outlives which
// process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/actors/cluster_events.hpp"
#include "tests/actors/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Two nodes of two GPUs.
class Rectangles : public ::testing::Test {
 protected:
  Rectangles() : world_(2, 2) {}
  void TearDown() override { world_.ShutDown(); }

  void Deploy(const std::string& name, std::uint32_t sms, std::uint32_t quota) {
    const auto wish = [&](auto& deploy) {
      deploy.mutable_sharing()->set_sm_partition(sms);
      deploy.mutable_sharing()->set_quota_request(quota);
    };
    ASSERT_TRUE(world_.Deploy(name, MiB(10), milliseconds(100), {"x"}, {}, wish).ok());
    world_.Run(seconds(1));
  }
  absl::Status Request(const std::string& name, std::uint32_t quota) {
    proto::AdminRequest request;
    auto& update = *request.mutable_update_function();
    update.mutable_key()->set_name(name);
    update.mutable_sharing()->set_quota_request(quota);
    update.add_settings("quota_request");
    const auto status = world_.Ask(request).status();
    world_.Run(seconds(1));
    return status;
  }
  proto::FunctionStatus StatusOf(const std::string& name) {
    proto::AdminRequest request;
    request.mutable_show_function()->mutable_key()->set_name(name);
    const auto reply = world_.Ask(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() && reply->functions_size() > 0 ? reply->functions(0) : proto::FunctionStatus();
  }
  std::vector<std::string> Owned(const std::string& name) {
    std::vector<std::string> owned;
    const auto status = StatusOf(name);
    for (const auto& place : status.record().places())
      owned.push_back(absl::StrCat(place.node(), "/", place.gpu()));
    return owned;
  }
  // The GPUs on which so many requests of the function ran. All have to be answered well.
  std::set<std::string> RunOn(const std::string& name, std::size_t requests, Duration gap) {
    const auto before = world_.answers.size();
    for (std::size_t i = 0; i < requests; ++i) {
      world_.Infer(name, ++calls_);
      world_.Run(gap);
    }
    world_.Run(seconds(10));
    EXPECT_EQ(world_.answers.size(), before + requests);
    std::set<std::string> on;
    for (auto i = before; i < world_.answers.size(); ++i) {
      const auto& reply = world_.answers[i].reply;
      EXPECT_EQ(reply.code(), 0) << reply.message();
      on.insert(absl::StrCat(reply.node(), "/", reply.gpu()));
    }
    return on;
  }

  World world_;
  std::uint64_t calls_ = 0;
};

TEST_F(Rectangles, AFunctionThatRequestsTimeRunsOnItsGpuAndNowhereElse) {
  Deploy("f", 24, 60);
  const auto owned = Owned("f");
  ASSERT_THAT(owned, SizeIs(1));
  EXPECT_THAT(MessagesOfKind(world_, "instances-placed"),
              Contains(HasSubstr("owns 24 % of the SMs for 60 % of the time on node-")));
  EXPECT_EQ(RunOn("f", 20, milliseconds(20)), (std::set<std::string>{owned[0]}));
  EXPECT_THAT(StatusOf("f").resident_on(), Contains(owned[0]));
}

TEST_F(Rectangles, ItsModelIsThereBeforeItsFirstRequest) {
  Deploy("f", 24, 60);
  EXPECT_THAT(StatusOf("f").resident_on(), Contains(Owned("f")[0]));
}

TEST_F(Rectangles, WhatNoGpuHasRoomForIsServedAllTheSame) {
  for (int i = 0; i < 5; ++i) Deploy(absl::StrCat("f", i), 100, 60);
  std::set<std::string> owned;
  std::size_t late = 0;
  for (int i = 0; i < 5; ++i) {
    const auto places = Owned(absl::StrCat("f", i));
    if (places.empty()) {
      ++late;
      EXPECT_THAT(StatusOf(absl::StrCat("f", i)).place_problem(), HasSubstr("it is bound late"));
    } else {
      owned.insert(places[0]);
    }
  }
  EXPECT_EQ(owned.size(), 4U);
  EXPECT_EQ(late, 1U);
  for (int i = 0; i < 5; ++i) RunOn(absl::StrCat("f", i), 5, milliseconds(20));
}

TEST_F(Rectangles, AnUpdateMovesWhatDoesNotFitBesideTheOthersAnyMore) {
  Deploy("a", 100, 50);
  Deploy("b", 100, 50);
  ASSERT_EQ(Owned("a"), Owned("b")) << "they are packed on one GPU";
  ASSERT_TRUE(Request("b", 60).ok());
  EXPECT_NE(Owned("a"), Owned("b"));
  EXPECT_EQ(RunOn("b", 10, milliseconds(20)), (std::set<std::string>{Owned("b")[0]}));
  ASSERT_TRUE(Request("b", 0).ok());
  EXPECT_THAT(Owned("b"), IsEmpty());
  RunOn("b", 10, milliseconds(20));
}

TEST_F(Rectangles, ANodeThatDiesLosesThemToAnotherOne) {
  Deploy("f", 50, 50);
  const auto before = Owned("f");
  ASSERT_THAT(before, SizeIs(1));
  world_.KillNode(before[0].substr(0, 6));
  world_.Run(seconds(5));
  const auto after = Owned("f");
  ASSERT_THAT(after, SizeIs(1));
  EXPECT_NE(after, before);
  EXPECT_EQ(RunOn("f", 10, milliseconds(20)), (std::set<std::string>{after[0]}));
}

TEST_F(Rectangles, AManagerThatRestartsMovesNothing) {
  Deploy("f", 50, 50);
  Deploy("g", 70, 70);
  const auto f = Owned("f"), g = Owned("g");
  world_.StopManager();
  world_.Run(seconds(1));
  world_.StartManager();
  world_.Run(seconds(10));
  EXPECT_EQ(Owned("f"), f);
  EXPECT_EQ(Owned("g"), g);
  EXPECT_EQ(RunOn("f", 10, milliseconds(20)), (std::set<std::string>{f[0]}));
}

TEST_F(Rectangles, AWorkerThatDiesGetsItsModelsAgain) {
  Deploy("f", 50, 50);
  const auto owned = Owned("f");
  auto& node = world_.node(owned[0].substr(0, 6));
  node.workers[static_cast<std::size_t>(owned[0].back() - '0')]->kill();
  world_.Run(seconds(3));
  EXPECT_THAT(StatusOf("f").resident_on(), Contains(owned[0]));
  EXPECT_EQ(RunOn("f", 10, milliseconds(20)), (std::set<std::string>{owned[0]}));
}

class LoadFollowed : public Rectangles {
 protected:
  // Runs take 10 ms, so that an instance serves a hundred requests a second. It owns parts whatever they cost.
  LoadFollowed() {
    world_.StopManager();
    world_.StartManager(2, [](ManagerOptions& options) { options.scaling.owning = "always"; });
    const auto wish = [](auto& deploy) {
      deploy.mutable_sharing()->set_sm_partition(50);
      deploy.mutable_sharing()->add_automatic("quota_request");
    };
    EXPECT_TRUE(world_.Deploy("f", MiB(10), milliseconds(100), {"x"}, {}, wish).ok());
    world_.Run(seconds(2));
    EXPECT_THAT(Owned("f"), IsEmpty());
  }
  // So many requests a second, and what the function owns then; all that has been asked for is answered well.
  std::size_t Instances(std::size_t per_second, std::size_t seconds_long) {
    for (std::size_t i = 0; i < per_second * seconds_long; ++i) {
      world_.Infer("f", ++calls_);
      world_.Run(Duration(seconds(1)) / static_cast<Duration::rep>(per_second));
    }
    return Owned("f").size();
  }
  void ExpectAllServed() {
    world_.Run(seconds(10));
    EXPECT_EQ(world_.answers.size(), calls_);
    for (const auto& answer : world_.answers) EXPECT_EQ(answer.reply.code(), 0) << answer.reply.message();
  }
};

TEST_F(LoadFollowed, PartsOfGpusComeWithTheLoadAndGoWithItAndNoRequestFails) {
  EXPECT_THAT(Instances(40, 3), testing::AllOf(testing::Ge(1U), testing::Le(2U)));
  EXPECT_GE(Instances(300, 8), 4U) << "300/s at 70 % of 100/s";
  EXPECT_EQ(Instances(10, 20), 1U);
  ExpectAllServed();
}

TEST_F(LoadFollowed, ANodeThatDiesAndAManagerThatRestartsInBetweenCostNothing) {
  EXPECT_GE(Instances(200, 5), 3U);
  world_.KillNode("node-1");
  EXPECT_GE(Instances(200, 5), 3U);
  for (const auto& place : Owned("f")) EXPECT_THAT(place, HasSubstr("node-2"));
  const auto before = Owned("f");
  world_.StopManager();
  for (int i = 0; i < 200; ++i) {
    world_.Infer("f", ++calls_);
    world_.Run(milliseconds(5));
  }
  world_.StartManager();
  world_.Run(seconds(3));
  EXPECT_GE(Owned("f").size(), before.size());
  EXPECT_GE(Instances(200, 5), before.size());
  ExpectAllServed();
}

}  // namespace
}  // namespace troupe::actors
