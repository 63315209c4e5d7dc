#include "sim/faults.hpp"

#include <gtest/gtest.h>

namespace troupe::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ClusterSpec TwoNodes() {
  ClusterSpec cluster;
  cluster.nodes = 2;
  return cluster;
}

TEST(Faults, AreReadAndBecomeStepsInTheirOrder) {
  const auto faults = ParseFaults(
      "- {at: 5s, partition: [gateway-1, node-2], for: 3s}\n"
      "- {at: 6s, cut: [node-1, manager]}\n"
      "- {at: 1s, partition: [manager, node-1], for: 500ms, one-way: true}\n",
      "f", TwoNodes());
  ASSERT_TRUE(faults.ok()) << faults.status();
  const auto steps = StepsOf(*faults);
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_EQ(steps[0].at, seconds(1));
  EXPECT_TRUE(steps[0].fault.one_way);
  EXPECT_EQ(steps[0].fault.from, "manager");
  EXPECT_EQ(steps[1].at, milliseconds(1500));
  EXPECT_TRUE(steps[1].ends);
  EXPECT_FALSE(steps[2].fault.one_way);
  EXPECT_EQ(steps[3].fault.kind, Fault::Kind::kCut);
  EXPECT_EQ(steps[4].at, seconds(8));
  EXPECT_EQ(steps[4].fault.to, "node-2");
}

TEST(Faults, MistakesAreToldWithTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {"at: 5s", "f:1:1: expected a list of"},
      {"- {at: 5s, partition: [gateway-1, node-3], for: 3s}",
       "f:1:23: partition: found 'no single value', "
       "expected two of the cluster's members"},
      {"- {at: 5s, cut: [node-1, node-1]}", "node-1 to node-2"},
      {"- {at: soon, cut: [node-1, manager]}", "f:1:8: at: found 'soon', expected a time"},
      {"- {at: 5s}", "f:1:3: a fault needs a time 'at', and either"},
      {"- {cut: [node-1, manager]}", "a fault needs a time 'at'"},
      {"- {at: 5s, cut: [node-1, manager], partition: [node-1, manager], for: 1s}", "either 'partition' or"},
      {"- {at: 5s, partition: [node-1, manager]}", "f:1:3: a partition needs its length"},
      {"- {at: 5s, cut: [node-1, manager], for: 3s}", "a cut has no length"},
      {"- {at: 5s, partition: [node-1, manager], for: 3s, one-way: maybe}", "expected true or false"},
      {"- {at: 5s, break: [node-1, manager]}", "found 'break', expected one of: at, cut, for, one-way"},
      {"- {at: 5s", "this is not valid YAML"}};
  for (const auto& [text, message] : all) {
    const auto status = ParseFaults(text, "f", TwoNodes()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(message), std::string::npos) << text << ": " << status;
  }
  EXPECT_EQ(ReadFaults("/nowhere", TwoNodes()).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace troupe::sim
