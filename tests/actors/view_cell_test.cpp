// The view that the gateway's threads read while the router changes it.
#include "actors/gateway/view_cell.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actors/gateway/gateway_service.hpp"

namespace troupe::actors {
namespace {

// The deployment of a function, as a manager tells it whose revisions count by ones.
proto::ClusterUpdate Deployment(std::uint64_t revision, const std::string& name) {
  proto::ClusterUpdate update;
  update.set_since(revision - 1);
  update.set_revision(revision);
  auto& record = *update.add_functions();
  record.mutable_key()->set_name(name);
  record.mutable_key()->set_version("1");
  record.set_model_digest("model " + name);
  record.set_loaded(true);
  return update;
}

// What a router knows of one node 'n' that holds these models.
cluster::CreditTable Holding(const std::vector<std::string>& models) {
  proto::CreditGrant grant;
  grant.set_node("n");
  grant.set_node_epoch(1);
  for (const auto& model : models) grant.mutable_adopted()->add_digests(model);
  cluster::CreditTable credits;
  credits.Apply(grant);
  return credits;
}

proto::ClusterUpdate Removal(std::uint64_t revision, const std::string& name) {
  proto::ClusterUpdate update;
  update.set_since(revision - 1);
  update.set_revision(revision);
  auto& key = *update.add_removed();
  key.set_name(name);
  key.set_version("1");
  return update;
}

TEST(ViewCell, AnUpdateCostsNoCopyWhileNoThreadKeepsAView) {
  ViewCell cell;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    const auto change = cell.Apply(Deployment(i, "f" + std::to_string(i)));
    ASSERT_TRUE(change.applied);
    ASSERT_EQ(change.deployed.size(), 1u);
    const auto view = cell.Get();
    EXPECT_EQ(view->revision(), i);
    ASSERT_EQ(view->functions().size(), i) << "an update is missing in one of the two views";
  }
  EXPECT_EQ(cell.copies(), 1u) << "the second view was copied more than once";
}

TEST(ViewCell, AViewThatIsReadNeverChanges) {
  ViewCell cell;
  std::vector<ViewSnapshot> kept;
  for (std::uint64_t i = 1; i <= 10; ++i) {
    ASSERT_TRUE(cell.Apply(Deployment(i, "f" + std::to_string(i))).applied);
    kept.push_back(cell.Get());
  }
  for (std::uint64_t i = 1; i <= 10; ++i) EXPECT_EQ(kept[i - 1]->functions().size(), i);
  kept.erase(kept.begin() + 3,
             kept.end());  // three old views are kept, and are not used again when they come back
  const auto copies = cell.copies();
  for (std::uint64_t i = 11; i <= 20; ++i) {
    ASSERT_TRUE(cell.Apply(Deployment(i, "f" + std::to_string(i))).applied);
    if (i == 15) kept.clear();
    ASSERT_EQ(cell.Get()->functions().size(), i);
  }
  EXPECT_LE(cell.copies(), copies + 1);
}

TEST(ViewCell, AGapChangesNothingAndASnapshotReplacesEverything) {
  ViewCell cell;
  ASSERT_TRUE(cell.Apply(Deployment(1, "a")).applied);
  EXPECT_FALSE(cell.Apply(Deployment(3, "c")).applied);
  EXPECT_EQ(cell.Get()->functions().size(), 1u);
  auto snapshot = Deployment(5, "b");
  snapshot.set_since(0);
  snapshot.set_snapshot(true);
  const auto change = cell.Apply(snapshot);
  ASSERT_EQ(change.removed.size(), 1u);
  EXPECT_EQ(change.removed[0].name(), "a");
  ASSERT_TRUE(cell.Apply(Removal(6, "b")).applied);
  EXPECT_EQ(cell.Get()->functions().size(), 0u);
  ASSERT_TRUE(cell.Apply(Deployment(7, "c")).applied);
  EXPECT_EQ(cell.Get()->functions().size(), 1u) << "the snapshot and the removal reached the other view, too";
}

TEST(ViewCell, AReaderMayOutliveIt) {
  ViewSnapshot view;
  {
    ViewCell cell;
    ASSERT_TRUE(cell.Apply(Deployment(1, "a")).applied);
    view = cell.Get();
    ASSERT_TRUE(cell.Apply(Deployment(2, "b")).applied);
  }
  EXPECT_EQ(view->functions().size(), 1u);
}

TEST(ViewCell, ThreadsReadWhileItChanges) {
  ViewCell cell;
  std::atomic<bool> done = false;
  std::atomic<std::uint64_t> wrong = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      std::uint64_t last = 0;
      while (!done) {
        const auto view = cell.Get();
        // Functions are only added here, one with each revision.
        if (view->functions().size() != view->revision() || view->revision() < last) ++wrong;
        last = view->revision();
      }
    });
  }
  for (std::uint64_t i = 1; i <= 500; ++i) {
    ASSERT_TRUE(cell.Apply(Deployment(i, "f" + std::to_string(i))).applied);
    cell.SetNodes(i);
  }
  done = true;
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(cell.nodes(), 500u);
}

// --- the service that reads the view ---

TEST(GatewayService, AWorkflowIsReadyWhenAllItsFunctionsAreServed) {
  const auto view = std::make_shared<ViewCell>();
  const auto servable = std::make_shared<ServableModels>();
  GatewayService service({.front = nullptr, .view = view, .servable = servable, .statistics = nullptr});
  auto update = Deployment(1, "left");
  update.set_workflows_listed(true);
  auto& workflow = *update.add_workflows();
  workflow.mutable_spec()->set_name("flow");
  workflow.mutable_spec()->set_version("1");
  for (const char* function : {"left", "right"}) {
    auto& step = *workflow.mutable_spec()->add_steps();
    step.set_name(std::string("step-") + function);
    step.set_function(function);
  }
  ASSERT_TRUE(view->Apply(update).applied);
  EXPECT_EQ((*service.Find("left", ""))->reason, "no node takes requests now");
  view->SetNodes(1);
  EXPECT_EQ((*service.Find("left", ""))->reason, "no node has its model in memory yet");
  servable->Publish(Holding({"model left", "model right"}), {"model left", "model right"});
  EXPECT_TRUE((*service.Find("left", ""))->ready);
  const auto lacking = *service.Find("flow", "");
  EXPECT_FALSE(lacking->ready);
  EXPECT_THAT(lacking->reason, testing::HasSubstr("step 'step-right': there is no function 'right'"));
  ASSERT_TRUE(view->Apply(Deployment(2, "right")).applied);
  EXPECT_TRUE((*service.Find("flow", ""))->ready);
}

// A probe is told 'ready' only when clients would not wait for models that nodes are still bringing back.
TEST(GatewayService, AGatewayIsReadyWhenItsFunctionsAreServable) {
  const auto view = std::make_shared<ViewCell>();
  const auto servable = std::make_shared<ServableModels>();
  GatewayService service({.front = nullptr, .view = view, .servable = servable, .statistics = nullptr});
  ASSERT_TRUE(view->Apply(Deployment(1, "left")).applied);
  ASSERT_TRUE(view->Apply(Deployment(2, "right")).applied);
  EXPECT_FALSE(service.Ready()) << "there is no node yet";
  view->SetNodes(1);
  EXPECT_FALSE(service.Ready());
  servable->Publish(Holding({"model left"}), {"model left"});
  EXPECT_FALSE(service.Ready());
  servable->Publish(Holding({"model left", "model right"}), {"model right"});
  EXPECT_TRUE(service.Ready());
  servable->Publish(Holding({}), {"model right"});
  EXPECT_TRUE(service.Ready()) << "a function that is lost later does not take the gateway out";
  EXPECT_FALSE((*service.Find("right", ""))->ready);
}

TEST(ServableModels, AModelThatDoesNotComeBackKeepsAGatewayOutForABoundedTime) {
  ServableModels models;
  EXPECT_FALSE(models.Settle(false, Time() + std::chrono::seconds(100)));
  EXPECT_FALSE(models.Settle(false, Time() + std::chrono::seconds(129)));
  EXPECT_TRUE(models.Settle(false, Time() + std::chrono::seconds(130)));
  EXPECT_TRUE(models.settled());
}

TEST(ServableModels, ADrainingNodeServesNothing) {
  auto credits = Holding({"a", "b"});
  proto::CreditGrant drains;
  drains.set_node("n");
  drains.set_node_epoch(1);
  drains.set_draining(true);
  EXPECT_EQ(ModelsTouchedBy(credits, drains), (std::vector<std::string>{"a", "b"}));
  ASSERT_TRUE(credits.Apply(drains));
  EXPECT_FALSE(credits.Servable("a"));
  EXPECT_EQ(credits.CountTaking(), 0u);
  EXPECT_EQ(ModelsOf(credits, "n"), (std::vector<std::string>{"a", "b"}));
}

}  // namespace
}  // namespace troupe::actors
