// The manager's disk drops the objects to which no function and no run refers any more, and keeps all others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/digest.hpp"
#include "sim/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Collecting : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.StartManager(1, [](ManagerOptions& options) { options.collect_every = seconds(1); });
    world_.StartGateway();
    sim::World::NodePlan plan;
    plan.options.name = "node-1";
    plan.options.copies.region = plan.host_region;
    plan.options.gpus.push_back({"fake:0", plan.worker.memory});
    world_.StartNode(std::move(plan));
    world_.Run(milliseconds(500));
  }
  void TearDown() override { world_.ShutDown(); }

  [[nodiscard]] bool Has(const std::string& digest) { return world_.manager_repository().Has(digest); }
  [[nodiscard]] bool Told(const std::string& kind) {
    proto::AdminRequest request;
    request.mutable_list_events();
    const auto reply = world_.Ask(request);
    return reply.ok() && std::any_of(reply->events().begin(), reply->events().end(),
                                     [&](const proto::Event& event) { return event.kind() == kind; });
  }
  // Long enough for an object that was used at the beginning to count as unused.
  void Collect() { world_.Run(milliseconds(2500)); }

  sim::World world_;
};

TEST_F(Collecting, WhatNothingRefersToGoesAndWhatAFunctionNeedsStays) {
  ASSERT_TRUE(world_.Deploy("kept", MiB(1)).ok());
  ASSERT_TRUE(world_.Deploy("removed", MiB(1)).ok());
  world_.manager_repository().Put("a blob of a run that was forgotten");
  Collect();
  EXPECT_FALSE(Has(Sha256Hex("a blob of a run that was forgotten")));
  EXPECT_TRUE(Has(sim::World::ModelDigest("kept")));
  EXPECT_TRUE(Has(sim::World::ModelDigest("removed")));
  EXPECT_TRUE(Told("objects-removed"));

  proto::AdminRequest request;
  request.mutable_remove()->mutable_key()->set_name("removed");
  ASSERT_TRUE(world_.Ask(request).ok());
  Collect();
  EXPECT_FALSE(Has(sim::World::ModelDigest("removed")));
  EXPECT_TRUE(Has(sim::World::ModelDigest("kept")));
}

TEST_F(Collecting, AManagerThatWasKilledBetweenTheRemovalAndTheCollectionGoesOnWithIt) {
  ASSERT_TRUE(world_.Deploy("kept", MiB(1)).ok());
  ASSERT_TRUE(world_.Deploy("removed", MiB(1)).ok());
  proto::AdminRequest request;
  request.mutable_remove()->mutable_key()->set_name("removed");
  ASSERT_TRUE(world_.Ask(request).ok());
  world_.StopManager();
  ASSERT_TRUE(Has(sim::World::ModelDigest("removed")));
  world_.StartManager(1, [](ManagerOptions& options) { options.collect_every = seconds(1); });
  Collect();
  EXPECT_FALSE(Has(sim::World::ModelDigest("removed")));
  EXPECT_TRUE(Has(sim::World::ModelDigest("kept")));
}

}  // namespace
}  // namespace troupe::actors
