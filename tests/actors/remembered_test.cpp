// A node that lost everything but its disk while the manager is away serves the models that it had adopted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/actors/world.hpp"

namespace troupe::actors::remembered_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One node, which is started again with the records that it handed over for its disk.
class Remembered : public testing::Test {
 protected:
  Remembered() : world_(1, 1, {}, {}, GiB(2), [this](NodeOptions& options) { Keep(options); }) {}

  void Keep(NodeOptions& options) {
    options.save_adopted = [this](proto::ClusterUpdate adopted, const NodeOptions::Saved& saved) {
      if (disk_is_full_) return saved(absl::ResourceExhaustedError("no space left"));
      disk_ = std::move(adopted);
      ++saves_;
      saved(absl::OkStatus());
    };
  }
  void Deploy(const std::string& name, const std::vector<proto::StateTensor>& state = {}) {
    ASSERT_TRUE(world_.Deploy(name, MiB(50), milliseconds(100), {"x"}, state).ok());
    names_.push_back(name);
    world_.Run(seconds(1));
  }
  // Deploys resnet and bert, then removes resnet; the removal has not reached this disk.
  void DeployBothAndRemoveOneUnsaved() {
    Deploy("resnet");
    Deploy("bert");
    const auto both = disk_;
    proto::AdminRequest remove;
    remove.mutable_remove()->mutable_key()->set_name("resnet");
    ASSERT_TRUE(world_.Ask(remove).ok());
    world_.Run(seconds(1));
    disk_ = both;
  }
  // The machine loses power: its daemon, workers and host region are gone, its disk remains.
  void RestartNode() {
    world_.KillNode("node-1");
    world_.Run(milliseconds(100));
    sim::World::NodePlan plan{.options = {}, .worker = {}, .host_region = GiB(2), .make_gpu = {}};
    plan.options.name = "node-1";
    plan.options.copies.region = GiB(2);
    plan.options.gpus.push_back({"fake:0", plan.worker.memory});
    plan.options.remembered = disk_;
    plan.options.on_event = [this](const std::string& kind, const std::string&) { events_.push_back(kind); };
    Keep(plan.options);
    world_.StartNode(std::move(plan));
    for (const auto& name : names_)
      for (const char* part : {"model ", "weights "}) world_.node("node-1").repository.Put(part + name);
  }
  [[nodiscard]] std::vector<std::string> Saved() const {
    std::vector<std::string> names;
    for (const auto& record : disk_.functions()) names.push_back(record.key().name());
    return names;
  }
  // The answer of the next request.
  int Ask(const std::string& function) {
    const auto before = world_.answers.size();
    world_.Infer(function, ++calls_, seconds(3));
    world_.RunUntil([&] { return world_.answers.size() > before; }, seconds(5));
    return world_.answers.size() > before ? world_.answers.back().reply.code() : -1;
  }

  proto::ClusterUpdate disk_;
  bool disk_is_full_ = false;
  int saves_ = 0;
  std::vector<std::string> names_, events_;
  World world_;
  std::uint64_t calls_ = 0;
};

TEST_F(Remembered, WhatIsAdoptedIsHandedOverAndOnlyWhenItChanges) {
  EXPECT_EQ(saves_, 0);
  Deploy("resnet");
  Deploy("bert");
  EXPECT_THAT(Saved(), testing::UnorderedElementsAre("resnet", "bert"));
  const int saves = saves_;
  world_.Run(seconds(30));
  EXPECT_EQ(saves_, saves) << "the node saved although nothing has changed";
  proto::AdminRequest remove;
  remove.mutable_remove()->mutable_key()->set_name("resnet");
  ASSERT_TRUE(world_.Ask(remove).ok());
  world_.Run(seconds(1));
  EXPECT_THAT(Saved(), testing::ElementsAre("bert"));
}

TEST_F(Remembered, WhatAFullDiskRefusesIsSavedOnceThereIsRoom) {
  disk_is_full_ = true;
  Deploy("resnet");
  world_.Run(seconds(30));
  ASSERT_EQ(saves_, 0);
  disk_is_full_ = false;
  world_.Run(seconds(10));
  EXPECT_THAT(Saved(), testing::ElementsAre("resnet")) << "although nothing has changed since";
  EXPECT_EQ(saves_, 1);
  world_.Run(seconds(30));
  EXPECT_EQ(saves_, 1);
}

TEST_F(Remembered, ItServesAgainWhileTheManagerIsAway) {
  Deploy("resnet");
  world_.StopManager();
  world_.Run(seconds(1));
  RestartNode();
  EXPECT_EQ(Ask("resnet"), 0);
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "manager-away"), 1);
  // The manager that comes back finds the node with the models that it holds.
  world_.StartManager();
  world_.Run(seconds(3));
  proto::AdminRequest request;
  request.mutable_list_functions();
  const auto functions = world_.Ask(request);
  ASSERT_TRUE(functions.ok());
  ASSERT_EQ(functions->functions_size(), 1);
  EXPECT_EQ(functions->functions(0).adopted_by_size(), 1);
  EXPECT_EQ(Ask("resnet"), 0);
}

TEST_F(Remembered, AManagerThatIsThereSaysWhatIsToBeHere) {
  DeployBothAndRemoveOneUnsaved();
  RestartNode();
  world_.Run(seconds(5));
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "manager-away"), 0);
  EXPECT_EQ(world_.node("node-1").repository.host_copies(), 1u) << "a removed model came back";
  EXPECT_THAT(Saved(), testing::ElementsAre("bert"));
  EXPECT_EQ(Ask("bert"), 0);
  EXPECT_NE(Ask("resnet"), 0);
}

TEST_F(Remembered, WhatWasRemovedMeanwhileGoesWhenTheManagerIsBack) {
  DeployBothAndRemoveOneUnsaved();
  world_.StopManager();
  world_.Run(seconds(1));
  RestartNode();
  world_.Run(seconds(3));
  EXPECT_EQ(world_.node("node-1").repository.host_copies(), 2u);
  world_.StartManager();
  world_.Run(seconds(3));
  EXPECT_EQ(world_.node("node-1").repository.host_copies(), 1u);
  EXPECT_EQ(Ask("bert"), 0);
}

TEST_F(Remembered, AModelThatIsNotOnItsDiskWaitsForTheManager) {
  Deploy("resnet");
  world_.StopManager();
  world_.Run(seconds(1));
  names_.clear();  // the disk lost its objects
  RestartNode();
  world_.Run(seconds(5));
  EXPECT_EQ(world_.node("node-1").repository.host_copies(), 0u);
  world_.StartManager();
  world_.Run(seconds(10));
  EXPECT_EQ(Ask("resnet"), 0);
}

TEST_F(Remembered, FunctionsWithStateWaitForTheManager) {
  proto::StateTensor state;
  state.set_input("past");
  state.set_output("next");
  Deploy("chat", {state});
  Deploy("resnet");
  EXPECT_THAT(Saved(), testing::ElementsAre("resnet")) << "only the manager knows which node keeps the state";
}

}  // namespace
}  // namespace troupe::actors::remembered_test
