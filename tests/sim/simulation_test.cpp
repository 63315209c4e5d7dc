// Whole clusters of production actors under virtual time, on small workloads.
#include "sim/simulation.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sim/presets.hpp"
#include "sim/traces/generators.hpp"

namespace troupe::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ClusterSpec SmallCluster(LoadMode loads = LoadMode::kPipelined) {
  ClusterSpec cluster;
  cluster.nodes = 2;
  cluster.gpus = 2;
  cluster.gpu_memory = GiB(1);
  cluster.loads = loads;
  cluster.models = {{"small", MiB(200), {milliseconds(10), {}, milliseconds(20)}, milliseconds(80)},
                    {"large", MiB(700), {milliseconds(40), {}, milliseconds(90)}, milliseconds(200)}};
  return cluster;
}

SimulationSetup SmallSetup(const std::string& workload, std::uint64_t seed,
                           const std::string& preset = "troupe") {
  Random random(seed);
  SimulationSetup setup;
  setup.cluster = SmallCluster();
  setup.workload = MakeWorkload(*ParseMadeWorkload(workload), random);
  setup.policies = *FindPreset(preset);
  setup.seed = seed;
  return setup;
}

TEST(Simulation, TheSameSeedGivesTheSameTraceUnderEveryPreset) {
  std::set<std::uint64_t> hashes;
  for (const auto& preset : Presets()) {
    const auto setup = SmallSetup("bursty functions=12 rate=30 length=20s", 5, std::string(preset.name));
    const auto one = Simulate(setup);
    const auto two = Simulate(setup);
    ASSERT_TRUE(one.ok()) << preset.name << ": " << one.status();
    EXPECT_EQ(one->trace_hash, two->trace_hash) << preset.name;
    EXPECT_TRUE(one->Conserved().ok()) << preset.name << ": " << one->Conserved();
    EXPECT_EQ(one->served + one->rejected, setup.workload.arrivals.size()) << preset.name;
    // All models together are more than the GPUs hold: a GPU to which functions are bound for good has no
    // room for some of them.
    EXPECT_EQ(one->rejected > 0, !preset.policy.binding.empty()) << preset.name;
    EXPECT_GT(one->swaps, 0u) << preset.name;
    hashes.insert(one->trace_hash);
  }
  EXPECT_GT(hashes.size(), 3u) << "presets make no difference";
  EXPECT_FALSE(
      hashes.contains(Simulate(SmallSetup("bursty functions=12 rate=30 length=20s", 6))->trace_hash));
}

TEST(Simulation, OneRequestTakesItsSwapAndItsRun) {
  auto setup = SmallSetup("poisson functions=1 rate=1 length=1s", 1);
  setup.workload.arrivals = {{seconds(1), 0}, {seconds(2), 0}};
  setup.workload.length = seconds(3);
  const auto outcome = Simulate(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_EQ(outcome->answers.size(), 2u);
  EXPECT_EQ(outcome->answers[0].took, milliseconds(20));
  EXPECT_EQ(outcome->answers[1].took, milliseconds(10));
  EXPECT_EQ(outcome->swaps, 1u);
  EXPECT_EQ(outcome->LatencyAt(50), milliseconds(10));
  EXPECT_EQ(outcome->LatencyAt(98), milliseconds(20));
}

TEST(Simulation, TorporBlockPaysForItsAllocations) {
  auto setup = SmallSetup("poisson functions=1 rate=1 length=1s", 1, "torpor-block");
  setup.workload.arrivals = {{seconds(1), 0}, {seconds(2), 0}};
  setup.workload.length = seconds(3);
  const auto outcome = Simulate(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_EQ(outcome->answers.size(), 2u);
  const AllocationTimes allocation = AllocationTimesOf("block-cache");
  EXPECT_EQ(outcome->answers[0].took, milliseconds(20) + allocation.load + allocation.run);
  EXPECT_EQ(outcome->answers[1].took, milliseconds(10) + allocation.run);
}

TEST(Simulation, WhatCannotBeServedExpiresAndNothingIsLost) {
  auto setup = SmallSetup("poisson functions=4 rate=300 length=10s", 2);
  setup.cluster.nodes = 1;
  setup.cluster.gpus = 1;
  setup.cluster.timeout = milliseconds(500);
  const auto outcome = Simulate(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_GT(outcome->expired, 100u);
  EXPECT_GT(outcome->served, 100u);
  EXPECT_TRUE(outcome->Conserved().ok()) << outcome->Conserved();
  for (const Answer& answer : outcome->answers) EXPECT_LE(answer.took, milliseconds(600));
}

// Four functions in two chains, of two users, on one GPU of 8 GiB.
SimulationSetup SandboxedSetup(const std::string& preset) {
  auto setup = SmallSetup("poisson functions=2 rate=20 length=20s", 3);
  setup.cluster.nodes = 1;
  setup.cluster.gpus = 1;
  setup.cluster.gpu_memory = GiB(16);
  setup.cluster.models = {{"small", MiB(200), {milliseconds(10), {}, {}}, milliseconds(80), MiB(100)}};
  setup.workload.functions = {{"a1", "", "alice", {2}, MiB(4)},
                              {"b1", "", "bob", {3}, MiB(4)},
                              {"a2", "", "alice"},
                              {"b2", "", "bob"}};
  const auto chosen = *FindSimPreset(preset);
  setup.policies = chosen.policies;
  setup.sandbox = chosen.sandbox;
  return setup;
}

TEST(Simulation, SandboxedWorkflowsAreServedUnderEveryPreset) {
  std::map<std::string, Duration> mean;
  for (const SandboxPreset& preset : SandboxPresets()) {
    const auto setup = SandboxedSetup(preset.name);
    const auto outcome = Simulate(setup);
    ASSERT_TRUE(outcome.ok()) << preset.name << ": " << outcome.status();
    EXPECT_TRUE(outcome->Conserved().ok()) << preset.name << ": " << outcome->Conserved();
    EXPECT_EQ(outcome->answers.size(), setup.workload.arrivals.size()) << preset.name;
    EXPECT_EQ(outcome->served, setup.workload.arrivals.size()) << preset.name;
    EXPECT_EQ(outcome->trace_hash, Simulate(setup)->trace_hash) << preset.name;
    Duration sum{};
    for (const auto& workflow : outcome->answers) sum += workflow.took;
    mean[preset.name] = sum / static_cast<Duration::rep>(outcome->answers.size());
  }
  EXPECT_LT(mean["astraea"], mean["infless"]);
  EXPECT_LT(mean["planned+streams"], mean["streambox"]);
  EXPECT_LT(mean["streambox"], mean["stream-only"]);
}

// The same requests arrive at once: a static pool has room for the activations of two runs at a time.
TEST(Simulation, FewerRunsFitBesideEachOtherInAStaticPool) {
  auto setup = SandboxedSetup("stream-only");
  setup.sandbox->runtimes = 1;
  setup.sandbox->isolation = proto::ISOLATION_SHARED;
  setup.cluster.gpu_memory = Bytes(1'500'000'000) + MiB(200 + 2 * 100 + 50);
  setup.workload.functions = {{"a1", "", "alice"}};
  setup.workload.arrivals = {{seconds(1), 0}};
  for (int i = 0; i < 8; ++i) setup.workload.arrivals.push_back({seconds(2), 0});
  const auto whole = Simulate(setup);
  ASSERT_TRUE(whole.ok()) << whole.status();
  setup.sandbox->pool = FindSimPreset("streambox")->sandbox->pool;
  const auto layers = Simulate(setup);
  ASSERT_TRUE(layers.ok()) << layers.status();
  // All eight runs share the GPU and end together, or they run two after two.
  EXPECT_EQ(layers->LatencyAt(25), layers->LatencyAt(90));
  EXPECT_LT(whole->LatencyAt(25), whole->LatencyAt(90));
  EXPECT_GT(whole->gpu_memory, layers->gpu_memory);
}

// The requests come in bursts for one function, which two nodes have: both nodes serve it, though only one
// has it on its GPU first.
TEST(Simulation, ABurstOfOneFunctionIsSharedByTheNodesOfASandbox) {
  auto setup = SandboxedSetup("streambox");
  setup.cluster.nodes = 2;
  setup.workload.arrivals = {{seconds(1), 0}};
  for (int i = 0; i < 10; ++i) setup.workload.arrivals.push_back({seconds(2) + milliseconds(i), 0});
  const auto bounded = Simulate(setup);
  ASSERT_TRUE(bounded.ok()) << bounded.status();
  setup.policies.routing = "locality";
  const auto one = Simulate(setup);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_GT(bounded->duplicates, 1);
  EXPECT_EQ(one->duplicates, 1);
  EXPECT_LT(bounded->LatencyAt(90), one->LatencyAt(90));
}

TEST(Simulation, MoreFunctionsThanRuntimesStartAnew) {
  auto setup = SandboxedSetup("infless");
  setup.sandbox->runtimes = 2;
  const auto few = Simulate(setup);
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_GT(few->starts, 2u);
  EXPECT_GT(few->LatencyAt(90), setup.sandbox->start);
  setup.sandbox->runtimes = 4;
  EXPECT_EQ(Simulate(setup)->starts, 0u);
  setup.cluster.gpu_memory = GiB(6);
  const auto status = Simulate(setup).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("model 'small' takes 300"), std::string::npos) << status;
}

TEST(Simulation, EndsEarlyWithWhatThereIs) {
  auto setup = SmallSetup("poisson functions=4 rate=20 length=60s", 2);
  setup.go_on = [](const Progress& progress) { return progress.at < seconds(10); };
  const auto outcome = Simulate(setup);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->ended_early);
  EXPECT_GT(outcome->served, 100u);
  EXPECT_LT(outcome->arrived, setup.workload.arrivals.size());
  EXPECT_TRUE(outcome->Conserved().ok()) << outcome->Conserved();
}

TEST(Simulation, ModelsThatAreNotThereAreRefused) {
  auto setup = SmallSetup("poisson functions=1 rate=1 length=1s", 1);
  setup.workload.functions[0].model = "unheard-of";
  EXPECT_EQ(Simulate(setup).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::sim
