// A cluster whose members have a network between them, and what is wrong with it now and then.
#include "sim/network.hpp"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "sim/simulation.hpp"
#include "sim/traces/generators.hpp"

namespace troupe::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Two nodes of a GPU; a run takes 10 ms, a swap with its run 20 ms.
SimulationSetup Networked() {
  SimulationSetup setup;
  setup.cluster.nodes = 2;
  setup.cluster.gpu_memory = GiB(1);
  setup.cluster.timeout = seconds(20);
  setup.cluster.models = {{"small", MiB(200), {milliseconds(10), {}, milliseconds(20)}, milliseconds(80)}};
  setup.cluster.network.emplace();
  setup.cluster.network->delay = milliseconds(1);
  setup.workload.functions = {{"f0", ""}};
  setup.workload.length = seconds(10);
  setup.policies = *FindPreset("troupe");
  return setup;
}

Outcome Played(const SimulationSetup& setup) {
  auto outcome = Simulate(setup);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  if (!outcome.ok()) return {};
  EXPECT_TRUE(outcome->Conserved().ok()) << outcome->Conserved();
  return *std::move(outcome);
}

TEST(Network, AMessageTakesItsDelayEachWay) {
  auto setup = Networked();
  setup.workload.arrivals = {{seconds(1), 0}, {seconds(2), 0}};
  const auto outcome = Played(setup);
  ASSERT_EQ(outcome.answers.size(), 2u);
  EXPECT_EQ(outcome.answers[0].took, milliseconds(22));
  EXPECT_EQ(outcome.answers[1].took, milliseconds(12));
  EXPECT_EQ(outcome.connections_lost, 0u);
}

TEST(Network, AShortPartitionHoldsWhatIsSent) {
  auto setup = Networked();
  setup.workload.arrivals = {{seconds(1), 0}, {milliseconds(2100), 0}};
  for (const char* node : {"node-1", "node-2"})
    setup.faults.push_back({.at = seconds(2), .from = "gateway-1", .to = node, .length = milliseconds(500)});
  const auto outcome = Played(setup);
  ASSERT_EQ(outcome.answers.size(), 2u);
  EXPECT_EQ(outcome.answers[1].took, milliseconds(400 + 12)) << "the request is sent when the partition ends";
  EXPECT_EQ(outcome.connections_lost, 0u);
}

TEST(Network, OneWayIsNotTheOther) {
  auto setup = Networked();
  setup.workload.arrivals = {{seconds(1), 0}, {milliseconds(2100), 0}, {milliseconds(4100), 0}};
  for (const char* node : {"node-1", "node-2"}) {
    // For half a second no answer comes back; later no request reaches the nodes.
    setup.faults.push_back(
        {.at = seconds(2), .from = node, .to = "gateway-1", .one_way = true, .length = milliseconds(500)});
    setup.faults.push_back(
        {.at = seconds(4), .from = "gateway-1", .to = node, .one_way = true, .length = milliseconds(500)});
  }
  const auto outcome = Played(setup);
  ASSERT_EQ(outcome.answers.size(), 3u);
  EXPECT_EQ(outcome.answers[1].took, milliseconds(400 + 1)) << "the answer was computed long before";
  EXPECT_EQ(outcome.answers[2].took, milliseconds(400 + 12));
}

TEST(Network, ALongPartitionLosesTheConnectionAndTheOtherNodeServes) {
  auto setup = Networked();
  for (int i = 0; i < 80; ++i) setup.workload.arrivals.push_back({milliseconds(1000 + 100 * i), 0});
  setup.faults = {{.at = milliseconds(1999), .from = "gateway-1", .to = "node-1", .length = seconds(3)},
                  {.at = milliseconds(6999), .from = "gateway-1", .to = "node-2", .length = seconds(3)}};
  const auto outcome = Played(setup);
  EXPECT_EQ(outcome.served, 80u);
  EXPECT_EQ(outcome.connections_lost, 2u);
  EXPECT_EQ(outcome.swaps, 2u) << "each node had to serve the model for a time";
}

TEST(Network, ALostConnectionIsMadeAnew) {
  auto setup = Networked();
  setup.cluster.nodes = 1;
  setup.workload.arrivals = {{seconds(1), 0}, {milliseconds(1995), 0}, {milliseconds(2005), 0}};
  setup.faults = {{.kind = Fault::Kind::kCut, .at = seconds(2), .from = "node-1", .to = "gateway-1"},
                  {.kind = Fault::Kind::kCut, .at = seconds(3), .from = "node-1", .to = "manager"}};
  const auto outcome = Played(setup);
  EXPECT_EQ(outcome.served, 3u) << "the request whose answer was on its way is served, too";
  EXPECT_EQ(outcome.connections_lost, 2u);
}

// The node still tells the gateway how many requests it takes.
TEST(Network, ANodeThatOnlyTheManagerHasLostIsWaitedFor) {
  auto setup = Networked();
  setup.cluster.nodes = 1;
  setup.workload.arrivals = {{seconds(1), 0}, {seconds(3), 0}};
  setup.faults = {{.at = seconds(2), .from = "node-1", .to = "manager", .length = seconds(3)}};
  const auto outcome = Played(setup);
  ASSERT_EQ(outcome.served, 2u);
  EXPECT_GE(outcome.answers[1].took, seconds(2));
}

// For every schedule of faults no request is lost, and the same seed gives the same run.
TEST(Network, NothingIsLostByAnyFaults) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    auto setup = Networked();
    Random random(seed);
    setup.cluster.nodes = 3;
    setup.cluster.timeout = seconds(3);
    setup.cluster.network->jitter = microseconds(300);
    setup.workload = MakeWorkload(*ParseMadeWorkload("bursty functions=8 rate=30 length=15s"), random);
    setup.seed = seed;
    const std::vector<std::string> members = {"manager", "gateway-1", "node-1", "node-2", "node-3"};
    for (int i = 0; i < 25; ++i) {
      Fault fault{.kind = random.Below(4) == 0 ? Fault::Kind::kCut : Fault::Kind::kPartition,
                  .at = milliseconds(1 + random.Below(15000)),
                  .from = members[random.Below(5)],
                  .to = members[random.Below(5)],
                  .one_way = random.Below(2) == 0,
                  .length = milliseconds(1 + random.Below(3000))};
      if (fault.from != fault.to) setup.faults.push_back(fault);
    }
    const auto one = Played(setup);
    EXPECT_GT(one.connections_lost, 3u) << "seed " << seed;
    EXPECT_GT(one.served, one.arrived / 2) << "seed " << seed;
    EXPECT_EQ(one.trace_hash, Played(setup).trace_hash) << "seed " << seed;
  }
}

}  // namespace
}  // namespace troupe::sim
