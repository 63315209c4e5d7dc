// Models on their way from node to node: the production caches over a simulated network. A range is one byte, so that an
// object of some sixty bytes comes in as many ranges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.hpp"
#include "sim/network.hpp"
#include "sim/world.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

const std::string kName = "a-function-with-a-name-that-makes-its-objects-long";
const std::uint64_t kBytes = 2 * kName.size() + std::string("model weights ").size();

class ModelPullsTest : public ::testing::Test {
 protected:
  ~ModelPullsTest() override { world_.ShutDown(); }

  sim::World::NodePlan PlanOf(const std::string& name) {
    sim::World::NodePlan plan;
    plan.options.name = name;
    plan.options.gpus.push_back({"fake:0", GiB(1)});
    plan.options.copies.region = plan.host_region;
    plan.options.on_event = [this](const std::string& kind, const std::string& message) {
      events_.emplace_back(kind, message);
    };
    plan.pulls.limits = {.range_bytes = 1, .under_way = 4, .of_a_source = 3, .in_memory = 8};
    return plan;
  }
  void Start(const std::string& name, std::shared_ptr<FakeRanges> ranges = std::make_shared<FakeRanges>()) {
    auto plan = PlanOf(name);
    plan.ranges = std::move(ranges);
    world_.StartNode(std::move(plan));
  }
  // Every node holds a copy of each model. The function is adopted by the nodes that are there.
  void DeployOn(const std::vector<std::string>& nodes,
                std::shared_ptr<FakeRanges> ranges = std::make_shared<FakeRanges>(), Bytes weights = MiB(1)) {
    world_.StartManager(9);
    for (const auto& node : nodes) Start(node, ranges);
    world_.Run(seconds(1));
    proto::AdminRequest request;
    request.mutable_deploy()->set_name(kName);
    request.mutable_deploy()->set_onnx_digest(world_.MakeModel(kName, weights));
    const auto deployed = world_.Ask(request, seconds(10));
    ASSERT_TRUE(deployed.ok()) << deployed.status();
    for (const auto& node : nodes) ASSERT_TRUE(Whole(node));
  }
  // True when the node has the objects of the model, with the right bytes, and a copy in its host region.
  bool Whole(const std::string& node) {
    world_.RunUntil([&] { return world_.node(node).repository.host_copies() == 1; }, seconds(20));
    auto& repository = world_.node(node).repository;
    return repository.host_copies() == 1 && repository.Has(World::ModelDigest(kName)) &&
           repository.Has(Sha256Hex("weights " + kName)) && repository.WrongObjects().empty();
  }
  std::uint64_t FromNodes(const std::string& node) { return world_.node(node).pulled->from_nodes; }
  std::uint64_t FromManager(const std::string& node) { return world_.node(node).pulled->from_manager; }
  void RunUntilBytes(const std::string& node, std::uint64_t bytes) {
    world_.RunUntil([&] { return FromNodes(node) >= bytes; }, seconds(20));
    ASSERT_LT(FromNodes(node), kBytes) << "the pull is in its middle";
  }
  std::vector<std::string> Told(const std::string& kind) {
    std::vector<std::string> told;
    for (const auto& [k, message] : events_)
      if (k == kind) told.push_back(message);
    return told;
  }

  using World = sim::World;
  sim::World world_{sim::NetworkOptions()};
  std::vector<std::pair<std::string, std::string>> events_;
};

TEST_F(ModelPullsTest, TheFirstNodesCopyComesFromTheManagerAndTheSecondOnesFromTheFirst) {
  DeployOn({"node-1"});
  EXPECT_EQ(FromManager("node-1"), kBytes);
  EXPECT_EQ(FromNodes("node-1"), 0u);
  Start("node-2");
  EXPECT_TRUE(Whole("node-2"));
  EXPECT_EQ(FromNodes("node-2"), kBytes);
  EXPECT_EQ(FromManager("node-2"), 0u);
}

TEST_F(ModelPullsTest, RangesComeFromSeveralNodesAtOnce) {
  const auto ranges = std::make_shared<FakeRanges>();
  ranges->spoil_every = 1000000;  // only counts
  DeployOn({"node-1"}, ranges);
  Start("node-2");
  ASSERT_TRUE(Whole("node-2"));
  ASSERT_EQ(ranges->reads, kBytes) << "node 1 gave all";
  Start("node-3");
  ASSERT_TRUE(Whole("node-3"));
  EXPECT_EQ(FromNodes("node-3"), kBytes);
  EXPECT_GT(ranges->reads, kBytes + kBytes / 3) << "node 1 gave about half";
  EXPECT_LT(ranges->reads, kBytes + kBytes - kBytes / 3) << "and node 2 the rest";
}

TEST_F(ModelPullsTest, TheManagerStandsInForANodeThatDiesInTheMiddle) {
  DeployOn({"node-1"});
  Start("node-2");
  RunUntilBytes("node-2", 20);
  world_.KillNode("node-1");
  EXPECT_TRUE(Whole("node-2"));
  EXPECT_GE(FromNodes("node-2"), 20u);
  EXPECT_GT(FromManager("node-2"), 0u);
  EXPECT_EQ(FromNodes("node-2") + FromManager("node-2"), kBytes) << "what had come is not fetched again";
}

TEST_F(ModelPullsTest, AnotherNodeGoesOnForOneThatDiesInTheMiddle) {
  DeployOn({"node-1", "node-2"});
  Start("node-3");
  RunUntilBytes("node-3", 20);
  world_.KillNode("node-1");
  EXPECT_TRUE(Whole("node-3"));
  EXPECT_EQ(FromNodes("node-3"), kBytes);
  EXPECT_EQ(FromManager("node-3"), 0u);
}

TEST_F(ModelPullsTest, ANodeThatCannotBeReachedIsNotWaitedForLong) {
  DeployOn({"node-1"});
  world_.network()->Partition("node-1", "node-2", false);
  Start("node-2");
  EXPECT_TRUE(Whole("node-2"));
  EXPECT_EQ(FromNodes("node-2"), 0u);
  EXPECT_EQ(FromManager("node-2"), kBytes);
}

TEST_F(ModelPullsTest, ANodeThatFallsSilentInTheMiddleIsLeftOut) {
  DeployOn({"node-1"});
  Start("node-2");
  RunUntilBytes("node-2", 20);
  world_.network()->Partition("node-1", "node-2", true);
  EXPECT_TRUE(Whole("node-2"));
  EXPECT_EQ(FromNodes("node-2") + FromManager("node-2"), kBytes);
}

// One of two nodes spoils what it reads: the range is not used, the node is named, and the other one gives the rest.
TEST_F(ModelPullsTest, ANodeThatSendsWrongBytesIsNamedAndLeftOut) {
  const auto wrong = std::make_shared<FakeRanges>();
  DeployOn({"node-1"}, wrong);
  Start("node-2");
  ASSERT_TRUE(Whole("node-2"));
  wrong->spoil_every = 5;
  Start("node-3");
  EXPECT_TRUE(Whole("node-3"));
  EXPECT_EQ(FromNodes("node-3"), kBytes) << "the right ranges of both";
  EXPECT_GT(wrong->spoiled, 0u);
  EXPECT_EQ(world_.node("node-3").pulled->wrong, Told("model-range-wrong").size());
  const auto told = Told("model-range-wrong");
  ASSERT_FALSE(told.empty());
  for (const auto& text : told) EXPECT_THAT(text, HasSubstr("node 'node-1' sent wrong bytes of object "));
}

TEST_F(ModelPullsTest, WhenEveryRangeOfTheOnlyNodeIsWrongTheManagerGivesAll) {
  const auto wrong = std::make_shared<FakeRanges>();
  DeployOn({"node-1"}, wrong);
  wrong->spoil_every = 1;
  Start("node-2");
  EXPECT_TRUE(Whole("node-2"));
  EXPECT_EQ(FromNodes("node-2"), 0u);
  EXPECT_EQ(FromManager("node-2"), kBytes);
  EXPECT_EQ(Told("model-range-wrong").size(), 2u) << "once for each of the model's two objects";
}

TEST_F(ModelPullsTest, ANodeThatLiesAboutSizesIsLeftOut) {
  const auto lies = std::make_shared<FakeRanges>();
  DeployOn({"node-1"}, lies);
  lies->lie = std::uint64_t{1} << 60U;
  Start("node-2");
  EXPECT_TRUE(Whole("node-2"));
  EXPECT_EQ(FromNodes("node-2"), 0u);
  const auto told = Told("model-range-wrong");
  ASSERT_FALSE(told.empty());
  EXPECT_THAT(told.front(), HasSubstr("it offers 1 bytes of an object of 11529215046068"));
}

TEST_F(ModelPullsTest, ANodeThatHasLostTheModelSaysSoAndTheManagerGivesIt) {
  DeployOn({"node-1"});
  world_.node("node-1").repository = FakeModelRepository();
  Start("node-2");
  EXPECT_TRUE(Whole("node-2"));
  EXPECT_EQ(FromManager("node-2"), kBytes);
  EXPECT_TRUE(Told("model-range-wrong").empty()) << "it is not at fault";
}

// Six nodes want the model of one, which serves eight ranges at a time.
TEST_F(ModelPullsTest, ManyNodesAtOnceAreServedWithinTheBoundOfOne) {
  DeployOn({"node-1"});
  for (int i = 2; i <= 7; ++i) Start("node-" + std::to_string(i));
  for (int i = 2; i <= 7; ++i) {
    const auto name = "node-" + std::to_string(i);
    EXPECT_TRUE(Whole(name)) << name;
    EXPECT_EQ(FromNodes(name) + FromManager(name), kBytes) << name;
  }
  EXPECT_TRUE(Told("model-range-wrong").empty());
}

// A model so large that nodes hand it on to each other, of which node 1 has a copy.
class Relays : public ModelPullsTest {
 protected:
  void DeployOnTheFirst() {
    ranges_->spoil_every = 1000000;  // only counts
    DeployOn({"node-1"}, ranges_, MiB(64));
    ranges_->reads = 0;
  }
  void StartMore(int last) {
    for (int i = 2; i <= last; ++i) Start(Name(i));
  }
  static std::string Name(int node) { return "node-" + std::to_string(node); }
  // What node 1 has sent.
  [[nodiscard]] std::uint64_t sent() const { return ranges_->reads; }

  const std::shared_ptr<FakeRanges> ranges_ = std::make_shared<FakeRanges>();
};

TEST_F(Relays, ANodeSendsAModelOnceHoweverManyNodesFetchItAtATime) {
  DeployOnTheFirst();
  StartMore(9);
  for (int i = 2; i <= 9; ++i) {
    EXPECT_TRUE(Whole(Name(i))) << Name(i);
    EXPECT_EQ(FromNodes(Name(i)), kBytes) << Name(i);
    EXPECT_EQ(FromManager(Name(i)), 0u) << Name(i);
  }
  EXPECT_EQ(sent(), kBytes);
}

// The second node does not wait until the first one has all: it is at most so far behind as lies in memory and under way.
TEST_F(Relays, RangesAreHandedOnAsTheyArrive) {
  DeployOnTheFirst();
  StartMore(3);
  RunUntilBytes("node-3", 20);
  EXPECT_FALSE(world_.node("node-2").repository.Has(Sha256Hex("weights " + kName)))
      << "node 2 is in the middle itself";
  EXPECT_LE(FromNodes("node-3"), FromNodes("node-2"));
  EXPECT_TRUE(Whole("node-2"));
  EXPECT_TRUE(Whole("node-3"));
}

TEST_F(Relays, WhenANodeInTheMiddleDiesTheNodesBehindItGoOn) {
  DeployOnTheFirst();
  StartMore(5);
  RunUntilBytes("node-4", 20);
  world_.KillNode("node-3");
  for (const int i : {2, 4, 5}) {
    EXPECT_TRUE(Whole(Name(i))) << Name(i);
    EXPECT_EQ(FromNodes(Name(i)) + FromManager(Name(i)), kBytes) << Name(i) << ": nothing came twice";
  }
}

TEST_F(Relays, WhenTheNodeThatHasTheModelDiesTheManagerStandsInAndSendsItOnce) {
  DeployOnTheFirst();
  StartMore(4);
  RunUntilBytes("node-2", 20);
  world_.KillNode("node-1");
  for (const int i : {2, 3, 4}) EXPECT_TRUE(Whole(Name(i))) << Name(i);
  EXPECT_GT(FromManager("node-2"), 0u);
  EXPECT_EQ(FromManager("node-3") + FromManager("node-4"), 0u) << "what comes to node 2 is handed on";
}

TEST_F(Relays, ANodeThatGetsNothingIsLeftByTheNodesBehindIt) {
  DeployOnTheFirst();
  StartMore(3);
  RunUntilBytes("node-3", 20);
  for (const char* of : {"manager", "node-1"}) world_.network()->Partition(of, "node-2", true);
  const auto before = world_.Now();
  EXPECT_TRUE(Whole("node-3"));
  EXPECT_LT(world_.Now() - before, seconds(6)) << "node 2 says after 4 s that a range has not come";
}

TEST_F(Relays, ANodeThatHandsOnWrongBytesIsNamedAndLeft) {
  DeployOnTheFirst();
  const auto wrong = std::make_shared<FakeRanges>();
  wrong->spoil_every = 3;
  Start("node-2", wrong);
  Start("node-3");
  EXPECT_TRUE(Whole("node-2"));
  EXPECT_TRUE(Whole("node-3"));
  ASSERT_GT(wrong->spoiled, 0u) << "node 3 was behind node 2";
  const auto told = Told("model-range-wrong");
  ASSERT_FALSE(told.empty());
  for (const auto& text : told) EXPECT_THAT(text, HasSubstr("node 'node-2' sent wrong bytes of object "));
}

TEST_F(Relays, AfterARestartOfTheManagerAllGetIt) {
  DeployOnTheFirst();
  StartMore(5);
  RunUntilBytes("node-3", 20);
  world_.StopManager();
  world_.Run(seconds(3));
  world_.StartManager(9);
  for (int i = 2; i <= 5; ++i) EXPECT_TRUE(Whole(Name(i))) << Name(i);
}

TEST_F(ModelPullsTest, APullThatLosesTheManagerGoesOnWhenItIsBack) {
  DeployOn({"node-1"});
  Start("node-2");
  RunUntilBytes("node-2", 20);
  world_.StopManager();
  world_.Run(seconds(20));
  EXPECT_FALSE(world_.node("node-2").repository.Has(Sha256Hex("weights " + kName)))
      << "without the manager no range can be checked";
  world_.StartManager(9);
  EXPECT_TRUE(Whole("node-2"));
  EXPECT_EQ(FromNodes("node-2"), kBytes) << "what had come was kept, and node 1 was not given up";
}

TEST_F(ModelPullsTest, APullFromTheManagerGoesOnWhenItIsBack) {
  DeployOn({"node-1"});
  world_.network()->Partition("node-1", "node-2", false);
  Start("node-2");
  world_.RunUntil([&] { return FromManager("node-2") >= 20; }, seconds(20));
  ASSERT_LT(FromManager("node-2"), kBytes);
  world_.StopManager();
  world_.Run(seconds(3));
  world_.StartManager(9);
  EXPECT_TRUE(Whole("node-2"));
  EXPECT_EQ(FromManager("node-2"), kBytes) << "what had come was kept";
}

// A minute without the manager, and more.
TEST_F(ModelPullsTest, APullDoesNotWaitForTheManagerForEver) {
  DeployOn({"node-1"});
  Start("node-2");
  RunUntilBytes("node-2", 20);
  world_.StopManager();
  world_.Run(seconds(90));
  const auto before = FromNodes("node-2");
  world_.StartManager(9);
  world_.Run(seconds(20));  // until the nodes have joined again
  EXPECT_TRUE(Whole("node-2"));
  EXPECT_EQ(FromNodes("node-2"), before + kBytes) << "it began anew";
}

}  // namespace
}  // namespace troupe::actors
