#include "sim/experiments/fixed_placement.hpp"

#include <gtest/gtest.h>

namespace troupe::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Functions with models of a gigabyte and runs of two seconds, on GPUs that have room for two models.
PlacementProblem Problem(std::uint32_t gpus, std::size_t functions) {
  return {.gpus = gpus,
          .gpu_memory = GiB(2),
          .functions = std::vector<PlacedFunction>(functions, {.memory = GiB(1), .run = seconds(2)})};
}

Workload Asked(std::vector<Arrival> arrivals) {
  return {.functions = {}, .arrivals = std::move(arrivals), .length = seconds(60)};
}

Duration Waits(const PlacementProblem& problem, const Placement& placement, const Workload& workload) {
  return MeanWait(problem, placement, std::span(&workload, 1));
}

TEST(FixedPlacement, OneGpuServesOneAfterTheOtherInTheirOrder) {
  const auto workload = Asked({{seconds(0), 0}, {seconds(1), 1}, {seconds(1), 0}, {seconds(9), 1}});
  EXPECT_EQ(Waits(Problem(1, 2), {{true, true}}, workload), seconds(1));  // the mean of 0, 1, 3 and 0
  EXPECT_EQ(Waits(Problem(1, 2), {{true, true}}, Asked({})), Duration());
}

TEST(FixedPlacement, ARequestWaitsForTheGpuWithItsModelThoughAnotherIsIdle) {
  const auto workload = Asked({{seconds(0), 0}, {seconds(1), 0}});
  EXPECT_EQ(Waits(Problem(2, 2), {{true, false}, {false, true}}, workload), milliseconds(500));
  EXPECT_EQ(Waits(Problem(2, 2), {{true, false}, {true, true}}, workload), Duration());
}

TEST(FixedPlacement, OfIdleGpusItTakesTheOneThatOthersNeedLeast) {
  const auto workload = Asked({{seconds(0), 0}, {seconds(1), 1}});
  EXPECT_EQ(Waits(Problem(2, 2), {{true, true}, {true, false}}, workload), Duration());
}

TEST(FixedPlacement, WhatIsAskedForAtTheSameTimesComesToTheMostGpus) {
  std::vector<Arrival> arrivals;
  for (int second = 0; second < 60; second += 10) {
    arrivals.insert(arrivals.end(), {{seconds(second), 0}, {seconds(second), 0}});
    arrivals.push_back({seconds(second + 5), second % 20 == 0 ? 1u : 2u});
  }
  const auto workload = Asked(std::move(arrivals));
  const auto problem = Problem(2, 3);
  Random random(1);
  const auto found = FindPlacement(problem, std::span(&workload, 1), 200, random);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(Waits(problem, *found, workload), Duration());
  EXPECT_TRUE((*found)[0][0] && (*found)[1][0]);
  for (const std::size_t function : {1, 2}) EXPECT_NE((*found)[0][function], (*found)[1][function]);
}

TEST(FixedPlacement, MoreFunctionsThanFitHaveNoPlacement) {
  Random random(1);
  const auto found = FindPlacement(Problem(2, 5), {}, 10, random);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(found.status().message(),
            "5 functions do not fit on 2 GPUs of 2 GiB each: there is no placement that never changes");
}

}  // namespace
}  // namespace troupe::sim
