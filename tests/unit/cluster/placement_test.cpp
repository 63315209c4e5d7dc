#include "cluster/placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.hpp"

namespace troupe::cluster::placement_test {
namespace {

using testing::HasSubstr;

std::vector<PlacementModel> Models(int count, Bytes bytes = MiB(1)) {
  std::vector<PlacementModel> models;
  for (int i = 0; i < count; ++i) {
    const std::string name = "model" + std::to_string(i);
    models.push_back({.digest = name, .function = name, .host_bytes = bytes, .device_bytes = bytes});
  }
  return models;
}
std::vector<PlacementNode> Nodes(int count, Bytes region = GiB(4)) {
  std::vector<PlacementNode> nodes;
  for (int i = 0; i < count; ++i)
    nodes.push_back({.name = "node" + std::to_string(i), .region = region, .gpu_memory = GiB(1)});
  return nodes;
}
int Adoptions(const PlacementPlan& plan) {
  return static_cast<int>(
      std::count_if(plan.moves.begin(), plan.moves.end(), [](const auto& move) { return move.adopt; }));
}

TEST(Placement, AModelWithAFunctionThatKeepsStateHasOneCopy) {
  auto models = Models(3);
  models[1].single = true;
  const PlacementMap before = {{"model1", {"node0", "node1", "node2"}}};
  const PlacementPlan plan = PlanPlacement(models, Nodes(3), before, {});
  EXPECT_TRUE(plan.problems.empty());
  EXPECT_EQ(plan.placements.at("model0").size(), 2u);
  EXPECT_EQ(plan.placements.at("model1").size(), 1u);
  const auto given_up = std::count_if(plan.moves.begin(), plan.moves.end(),
                                      [](const auto& m) { return m.digest == "model1" && !m.adopt; });
  EXPECT_EQ(given_up, 2);
}

TEST(Placement, EachModelHasTwoCopiesOnDifferentNodes) {
  const PlacementPlan plan = PlanPlacement(Models(500), Nodes(5), {}, {});
  EXPECT_TRUE(plan.problems.empty());
  ASSERT_EQ(plan.placements.size(), 500u);
  std::map<std::string, int> load;
  for (const auto& [digest, nodes] : plan.placements) {
    EXPECT_EQ(std::set<std::string>(nodes.begin(), nodes.end()).size(), 2u);
    for (const std::string& node : nodes) ++load[node];
  }
  for (const auto& [node, count] : load) EXPECT_NEAR(count, 200, 60) << node;
  EXPECT_EQ(plan.moves.size(), 1000u);
}

TEST(Placement, AModelWithLoadHasMoreCopiesWhereThereIsRoomForThem) {
  auto models = Models(10);
  models[3].copies = 4;
  models[5].copies = 100;
  models[7].copies = 4;
  models[7].single = true;
  const PlacementPlan plan = PlanPlacement(models, Nodes(5), {}, {});
  EXPECT_TRUE(plan.problems.empty());
  EXPECT_FALSE(plan.tight);
  EXPECT_EQ(plan.placements.at("model3").size(), 4u);
  EXPECT_EQ(plan.placements.at("model5").size(), 5u) << "no node has it twice";
  EXPECT_EQ(plan.placements.at("model7").size(), 1u) << "its state is on one node";
  EXPECT_EQ(plan.placements.at("model0").size(), 2u);
}

// Copies for the load take no room that another model's first two copies need. That they are missing is no problem
// of which the operator is told.
TEST(Placement, CopiesForLoadComeAfterThoseThatEveryModelHas) {
  auto models = Models(10);
  models[0].copies = 4;
  const PlacementPlan plan = PlanPlacement(models, Nodes(4, MiB(5)), {}, {});
  EXPECT_TRUE(plan.problems.empty());
  EXPECT_TRUE(plan.tight);
  for (const auto& [digest, nodes] : plan.placements) EXPECT_EQ(nodes.size(), 2u) << digest;
}

TEST(Placement, OneNodeHoldsAll) {
  const PlacementPlan plan = PlanPlacement(Models(10), Nodes(1), {}, {});
  EXPECT_TRUE(plan.problems.empty());
  for (const auto& [digest, nodes] : plan.placements) EXPECT_EQ(nodes, std::vector<std::string>{"node0"});
}

TEST(Placement, ANodeThatComesTakesOnlyItsShare) {
  const auto models = Models(1000);
  const PlacementPlan before = PlanPlacement(models, Nodes(4), {}, {});
  const PlacementPlan after = PlanPlacement(models, Nodes(5), before.placements, {});
  EXPECT_NEAR(Adoptions(after), 400, 80);
  for (const PlacementMove& move : after.moves) {
    if (move.adopt) {
      EXPECT_EQ(move.node, "node4");
    }
  }
  EXPECT_EQ(static_cast<int>(after.moves.size()),
            2 * Adoptions(after));  // for each copy that a node gains, another loses one
}

TEST(Placement, ANodeThatDiesMovesOnlyItsOwn) {
  const auto models = Models(1000);
  const PlacementPlan before = PlanPlacement(models, Nodes(5), {}, {});
  auto nodes = Nodes(5);
  nodes.erase(nodes.begin() + 2);
  const PlacementPlan after = PlanPlacement(models, nodes, before.placements, {});
  int lost = 0;
  for (const auto& [digest, holders] : before.placements)
    lost += static_cast<int>(std::count(holders.begin(), holders.end(), "node2"));
  EXPECT_EQ(Adoptions(after), lost);
  EXPECT_EQ(static_cast<int>(after.moves.size()), lost);
  EXPECT_TRUE(PlanPlacement(models, nodes, after.placements, {}).moves.empty());
}

TEST(Placement, ADrainingNodeIsEmptiedAndASuspectOneKeepsWhatItHas) {
  const auto models = Models(100);
  auto nodes = Nodes(3);
  const PlacementPlan before = PlanPlacement(models, nodes, {}, {});
  nodes[0].leaving = true;
  const PlacementPlan drained = PlanPlacement(models, nodes, before.placements, {});
  for (const auto& [digest, holders] : drained.placements)
    EXPECT_EQ(holders, (std::vector<std::string>{"node1", "node2"}));
  nodes[0].leaving = false;
  nodes[0].accepts = false;
  EXPECT_TRUE(PlanPlacement(models, nodes, before.placements, {}).moves.empty());
}

// At random: a change of the nodes moves only the copies that have to move, whatever changes came before.
TEST(Placement, AnyChangeOfTheNodesMovesOnlyWhatItMust) {
  Random random(20261122);
  for (int round = 0; round < 60; ++round) {
    const auto models = Models(60 + static_cast<int>(random.Below(60)));
    const PlacementOptions options{.replicas = 1 + static_cast<std::uint32_t>(random.Below(3))};
    std::vector<PlacementNode> nodes = Nodes(3 + static_cast<int>(random.Below(4)));
    for (auto& node : nodes) node.region = GiB(1 + random.Below(8));
    PlacementMap current = PlanPlacement(models, nodes, {}, options).placements;
    int next = 100;
    for (int step = 0; step < 12; ++step) {
      const auto before = nodes;
      if (nodes.size() > 2 && random.Below(2) == 0) {
        nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(random.Below(nodes.size())));
      } else {
        nodes.push_back({.name = "node" + std::to_string(next++),
                         .region = GiB(1 + random.Below(8)),
                         .gpu_memory = GiB(1)});
      }
      const bool came = nodes.size() > before.size();
      const std::string gone =
          came ? "" : std::find_if(before.begin(), before.end(), [&](const auto& node) {
                        return std::find(nodes.begin(), nodes.end(), node) == nodes.end();
                      })->name;
      const PlacementPlan plan = PlanPlacement(models, nodes, current, options);
      for (const auto& [digest, after] : plan.placements) {
        const auto& held = current.at(digest);
        ASSERT_EQ(after.size(), std::min<std::size_t>(options.replicas, nodes.size()));
        for (const auto& node : after) {
          const bool is_new = std::find(held.begin(), held.end(), node) == held.end();
          const bool may = node == nodes.back().name || held.size() < after.size();
          EXPECT_TRUE(!came || !is_new || may) << digest << " went to an old node";
        }
        if (came) continue;
        const bool had_it = std::find(held.begin(), held.end(), gone) != held.end();
        EXPECT_TRUE(had_it || after == held) << digest << " moved without need";
        for (const auto& node : held)
          EXPECT_TRUE(node == gone || std::find(after.begin(), after.end(), node) != after.end()) << digest;
      }
      EXPECT_TRUE(PlanPlacement(models, nodes, plan.placements, options).moves.empty())
          << "a plan that is carried out moves nothing more";
      current = plan.placements;
    }
  }
}

TEST(Placement, LargerRegionsHoldMore) {
  auto nodes = Nodes(2);
  nodes[1].region = GiB(12);
  const PlacementPlan plan = PlanPlacement(Models(1000), nodes, {}, {.replicas = 1});
  int large = 0;
  for (const auto& [digest, holders] : plan.placements) large += holders.front() == "node1" ? 1 : 0;
  EXPECT_NEAR(large, 750, 60);
}

TEST(Placement, FullRegionsGiveEveryModelOneCopyFirst) {
  const PlacementPlan plan = PlanPlacement(Models(10, MiB(10)), Nodes(3, MiB(40)), {}, {});
  int copies = 0;
  for (const auto& [digest, holders] : plan.placements) {
    EXPECT_GE(holders.size(), 1u);
    copies += static_cast<int>(holders.size());
  }
  EXPECT_LE(copies, 12);
  EXPECT_GE(plan.problems.size(), 8u);
  EXPECT_THAT(std::string(plan.problems[0].why.message()), HasSubstr("full"));
}

TEST(Placement, BeyondAllRegionsEveryModelStillHasItsNodeAndStaysThere) {
  const auto models = Models(300, MiB(10));
  const PlacementPlan plan = PlanPlacement(models, Nodes(3, MiB(100)), {}, {});
  ASSERT_EQ(plan.placements.size(), 300u);
  std::map<std::string, int> load;
  for (const auto& [digest, holders] : plan.placements) {
    ASSERT_EQ(holders.size(), 1u);
    ++load[holders[0]];
  }
  for (const auto& [node, count] : load) EXPECT_NEAR(count, 100, 35) << node;
  EXPECT_TRUE(PlanPlacement(models, Nodes(3, MiB(100)), plan.placements, {}).moves.empty());
}

TEST(Placement, WhatFitsNowhereIsRefusedWithTheSizes) {
  PlacementModel model = Models(1, GiB(2))[0];
  EXPECT_EQ(CheckFits(model, {}).code(), absl::StatusCode::kUnavailable);
  const absl::Status gpu = CheckFits(model, Nodes(2));
  EXPECT_EQ(gpu.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(gpu.message()), testing::AllOf(HasSubstr("2 GiB"), HasSubstr("1 GiB")));
  model.device_bytes = MiB(1);
  const absl::Status host = CheckFits(model, Nodes(2, MiB(100)));
  EXPECT_THAT(std::string(host.message()), HasSubstr("host region"));
  EXPECT_TRUE(CheckFits(model, Nodes(1)).ok());
  auto split = Nodes(2, MiB(100));
  split[1].region = GiB(4);
  split[1].gpu_memory = Bytes(0);
  EXPECT_THAT(std::string(CheckFits(model, split).message()), HasSubstr("no single node"));
  const PlacementPlan plan = PlanPlacement(Models(1, GiB(2)), Nodes(2), {}, {});
  ASSERT_EQ(plan.problems.size(), 1u);
  EXPECT_EQ(plan.problems[0].why.code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace troupe::cluster::placement_test
