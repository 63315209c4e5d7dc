#include "cluster/run_takeover.hpp"

#include <gtest/gtest.h>

#include <map>

namespace troupe::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time kNow = Time(seconds(100));
constexpr Duration kGrace = seconds(2);

std::map<std::string, std::string> Plan(const std::vector<LooseRun>& runs,
                                        const std::vector<RunGateway>& gateways) {
  std::map<std::string, std::string> chosen;
  for (const auto& takeover : PlanTakeovers(runs, gateways, kNow, kGrace))
    EXPECT_TRUE(chosen.emplace(takeover.run, takeover.gateway).second) << "each run moves once";
  return chosen;
}
using Chosen = std::map<std::string, std::string>;

TEST(RunTakeover, WhatADeadGatewayHadMovesAtOnceAndTheRestAfterTheGrace) {
  const std::vector<RunGateway> gateways = {{"b", 0}};
  EXPECT_EQ(Plan({{"dead", "a", true, kNow},
                  {"fresh", "a", false, kNow - milliseconds(1999)},
                  {"late", "a", false, kNow - kGrace}},
                 gateways),
            (Chosen{{"dead", "b"}, {"late", "b"}}));
}

TEST(RunTakeover, TheGatewayWithTheFewestRunsAndOfEqualsAnotherOne) {
  EXPECT_EQ(Plan({{"r", "a", true, kNow}}, {{"b", 2}, {"c", 1}, {"d", 1}}), (Chosen{{"r", "c"}}));
  EXPECT_EQ(Plan({{"r", "b", false, kNow - kGrace}}, {{"b", 1}, {"c", 1}}), (Chosen{{"r", "c"}}))
      << "a gateway that was told and did not go on is not told again";
  EXPECT_EQ(Plan({{"r", "b", false, kNow - kGrace}}, {{"b", 1}}), (Chosen{{"r", "b"}}))
      << "the same gateway is told again when there is no other";
  EXPECT_TRUE(Plan({{"r", "b", true, kNow}}, {}).empty()) << "the run waits until a gateway comes";
}

TEST(RunTakeover, ManyRunsAreSpreadEvenly) {
  std::vector<LooseRun> runs;
  for (int i = 0; i < 90; ++i) runs.push_back({"r" + std::to_string(i), "dead", true, kNow});
  std::map<std::string, int> count = {{"b", 10}, {"c", 0}, {"d", 20}};
  for (const auto& [run, gateway] : Plan(runs, {{"b", 10}, {"c", 0}, {"d", 20}})) ++count[gateway];
  EXPECT_EQ(count, (std::map<std::string, int>{{"b", 40}, {"c", 40}, {"d", 40}}));
}

}  // namespace
}  // namespace troupe::cluster
