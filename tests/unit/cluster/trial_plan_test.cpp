// Which trials an experiment makes, and what it says of the points that it did not try: over grids of many kinds and
// models whose true throughput is known.
#include "cluster/profiling/trial_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>

namespace troupe::cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Truth = std::function<double(const TrialPoint&)>;

// Runs take in proportion less time up to the saturation, and a quota takes its part (Fig. 8 of the paper).
Truth Saturating(double saturation, double most = 100) {
  return [=](const TrialPoint& point) {
    return most * std::min(point.sm_partition / saturation, 1.0) * point.quota_limit / 100 *
           std::sqrt(point.batch);
  };
}

proto::ProfilingExperiment ExperimentOf(proto::ProfilingMethod method,
                                        const proto::ProfilingGrid& wish = {}) {
  proto::ProfilingExperiment experiment;
  experiment.set_method(method);
  *experiment.mutable_grid() = *CompleteGrid(wish);
  return experiment;
}

proto::ProfileRow Measured(const TrialPoint& point, double throughput) {
  auto row = RowAt(point);
  row.set_throughput(throughput);
  row.set_run_ns(static_cast<std::int64_t>(1e9 * point.batch * point.quota_limit / 100 / throughput));
  return row;
}

// Makes all trials; each point is asked for once.
void Carry(proto::ProfilingExperiment& experiment, const Truth& truth) {
  std::set<TrialPoint> asked;
  while (const auto point = NextTrial(experiment)) {
    ASSERT_TRUE(asked.insert(*point).second) << "a point was asked for twice";
    ASSERT_GT(TrialsLeft(experiment), 0u);
    *experiment.add_rows() = Measured(*point, truth(*point));
    ASSERT_LE(asked.size(), 2000u);
  }
  EXPECT_EQ(TrialsLeft(experiment), 0u);
}

double WorstError(const proto::ProfilingExperiment& experiment, const Truth& truth) {
  double worst = 0;
  for (const auto& row : RowsOf(experiment)) {
    const double right = truth(PointOf(row));
    worst = std::max(worst, std::abs(row.throughput() - right) / right);
  }
  return worst;
}

TEST(TrialPlan, WhatIsNotSaidIsAsInThePaper) {
  const auto grid = *CompleteGrid({});
  EXPECT_THAT(grid.sm_partitions(), ElementsAre(6, 12, 24, 50, 60, 80, 100));
  EXPECT_THAT(grid.quota_limits(), ElementsAre(20, 40, 60, 80, 100));
  EXPECT_THAT(grid.batches(), ElementsAre(1));
}

TEST(TrialPlan, AGridThatNoGpuHasIsRefusedByName) {
  const auto wrong = [](std::uint32_t share, std::uint32_t quota, std::uint32_t batch) {
    proto::ProfilingGrid grid;
    grid.add_sm_partitions(share);
    grid.add_quota_limits(quota);
    grid.add_batches(batch);
    return std::string(CompleteGrid(grid).status().message());
  };
  EXPECT_THAT(wrong(0, 100, 1), HasSubstr("share of the SMs of 0"));
  EXPECT_THAT(wrong(101, 100, 1), HasSubstr("between 1 and 100"));
  EXPECT_THAT(wrong(6, 0, 1), HasSubstr("quota of 0"));
  EXPECT_THAT(wrong(6, 100, 33), HasSubstr("between 1 and 32"));
  proto::ProfilingGrid twice;
  twice.add_batches(4);
  twice.add_batches(4);
  EXPECT_THAT(CompleteGrid(twice).status().message(), HasSubstr("batch 4 twice"));
  proto::ProfilingGrid large;
  for (std::uint32_t i = 1; i <= 100; ++i) {
    large.add_sm_partitions(i);
    large.add_quota_limits(i);
  }
  EXPECT_THAT(CompleteGrid(large).status().message(), HasSubstr("2000 are the most"));
}

TEST(TrialPlan, AGridMeasuresEveryPointOnce) {
  auto experiment = ExperimentOf(proto::PROFILING_GRID);
  Carry(experiment, Saturating(24));
  EXPECT_EQ(experiment.rows_size(), 35);
  EXPECT_EQ(RowsOf(experiment).size(), 35u);
  EXPECT_EQ(WorstError(experiment, Saturating(24)), 0);
}

// For every saturation from 1 to 100 %: the whole table, from at most 40 % of its trials.
TEST(TrialPlan, BisectingFindsEachSaturationWithFortyPercentOfTheTrials) {
  for (int saturation = 1; saturation <= 100; ++saturation) {
    auto experiment = ExperimentOf(proto::PROFILING_BISECT);
    Carry(experiment, Saturating(saturation));
    EXPECT_LE(experiment.rows_size(), 14) << saturation;
    EXPECT_EQ(RowsOf(experiment).size(), 35u) << saturation;
    EXPECT_LE(WorstError(experiment, Saturating(saturation)), kMostProfileError) << saturation;
  }
}

TEST(TrialPlan, BisectingHoldsOnGridsOfManyKinds) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    proto::ProfilingGrid grid;
    for (std::uint32_t share = 4; share <= 100; share += 1 + random() % 20) grid.add_sm_partitions(share);
    for (std::uint32_t quota = 5; quota <= 100; quota += 5 + random() % 30) grid.add_quota_limits(quota);
    for (std::uint32_t batch = 1; batch <= 2; batch *= 2) grid.add_batches(batch);
    auto experiment = ExperimentOf(proto::PROFILING_BISECT, grid);
    const auto truth =
        Saturating(1 + static_cast<double>(random() % 100), 1 + static_cast<double>(random() % 1000));
    Carry(experiment, truth);
    const auto points = grid.sm_partitions_size() * grid.quota_limits_size();
    const auto search = 2 + static_cast<int>(std::ceil(std::log2(grid.sm_partitions_size())));
    EXPECT_LE(experiment.rows_size(), 2 * std::max(static_cast<int>(kBisectedPart * points), search))
        << round;
    // A budget that ends before each quota was tried still foresees the model's proportions.
    EXPECT_LE(WorstError(experiment, truth), kMostProfileError) << round;
  }
}

// With a measuring error of 1 %, as the steady criterion leaves it.
TEST(TrialPlan, BisectingBearsNoise) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> noise(0.99, 1.01);
  for (int saturation = 3; saturation <= 100; ++saturation) {
    auto experiment = ExperimentOf(proto::PROFILING_BISECT);
    const auto truth = Saturating(saturation);
    Carry(experiment, [&](const TrialPoint& point) { return truth(point) * noise(random); });
    EXPECT_LE(experiment.rows_size(), 14);
    EXPECT_LE(WorstError(experiment, truth), 0.06) << saturation;
  }
}

// A curve that bends before it saturates is measured where the foreseen line was wrong.
TEST(TrialPlan, MoreIsMeasuredWhereTheCurveBends) {
  const Truth bent = [](const TrialPoint& point) {
    return 100 * (1 - std::exp(-(point.sm_partition / 20.0))) * point.quota_limit / 100;
  };
  auto straight = ExperimentOf(proto::PROFILING_BISECT);
  Carry(straight, Saturating(100));
  auto experiment = ExperimentOf(proto::PROFILING_BISECT);
  Carry(experiment, bent);
  EXPECT_GT(experiment.rows_size(), straight.rows_size());
  EXPECT_LE(experiment.rows_size(), 14);
}

// A quota that is not kept in proportion shows at the smallest share and quota.
TEST(TrialPlan, QuotasThatAreNotInProportionAreMeasured) {
  const Truth held_up = [](const TrialPoint& point) {
    return point.quota_limit < 100 && point.sm_partition < 50 ? 1.0 : Saturating(50)(point);
  };
  auto experiment = ExperimentOf(proto::PROFILING_BISECT);
  Carry(experiment, held_up);
  const auto at_smallest = std::ranges::count_if(
      experiment.rows(), [](const auto& row) { return row.quota_limit() == 20 && row.sm_partition() < 100; });
  EXPECT_GE(at_smallest, 3);
}

TEST(TrialPlan, AFailedTrialIsNotMadeAgainAndStaysInTheTable) {
  auto experiment = ExperimentOf(proto::PROFILING_BISECT);
  const auto truth = Saturating(24);
  while (const auto point = NextTrial(experiment)) {
    auto row = Measured(*point, truth(*point));
    if (point->sm_partition == 6) {
      row = RowAt(*point);
      row.set_state(proto::PROFILE_ROW_FAILED);
      row.set_reason("its worker died");
    }
    *experiment.add_rows() = row;
  }
  EXPECT_LE(experiment.rows_size(), 14);
  const auto rows = RowsOf(experiment);
  EXPECT_EQ(rows.size(), 35u);
  for (const auto& row : rows) {
    if (row.state() == proto::PROFILE_ROW_FAILED) {
      EXPECT_EQ(row.sm_partition(), 6u);
      continue;
    }
    const double right = truth(PointOf(row));
    EXPECT_NEAR(row.throughput(), right, kMostProfileError * right) << row.DebugString();
  }
}

TEST(TrialPlan, WithoutTheWholeGpuNothingIsForeseen) {
  auto experiment = ExperimentOf(proto::PROFILING_BISECT);
  auto row = RowAt(*NextTrial(experiment));
  EXPECT_EQ(row.sm_partition(), 100u);
  row.set_state(proto::PROFILE_ROW_FAILED);
  *experiment.add_rows() = row;
  EXPECT_EQ(NextTrial(experiment), std::nullopt);
  EXPECT_EQ(RowsOf(experiment).size(), 1u);
}

TEST(TrialPlan, AnInterpolatedRowSaysSoAndHasTheTimeOfARun) {
  auto experiment = ExperimentOf(proto::PROFILING_BISECT);
  Carry(experiment, Saturating(50));
  std::size_t interpolated = 0;
  for (const auto& row : RowsOf(experiment)) {
    if (row.state() != proto::PROFILE_ROW_INTERPOLATED) continue;
    ++interpolated;
    const double right = 10e6 * 50 / std::min<double>(50, row.sm_partition());
    EXPECT_NEAR(static_cast<double>(row.run_ns()), right, kMostProfileError * right) << row.DebugString();
  }
  EXPECT_EQ(interpolated, 35u - static_cast<std::size_t>(experiment.rows_size()));
}

// An experiment that was written down and read again asks for the same trials.
TEST(TrialPlan, TheRecordAloneDecides) {
  auto experiment = ExperimentOf(proto::PROFILING_BISECT);
  while (const auto point = NextTrial(experiment)) {
    proto::ProfilingExperiment read;
    ASSERT_TRUE(read.ParseFromString(experiment.SerializeAsString()));
    ASSERT_EQ(NextTrial(read), point);
    *experiment.add_rows() = Measured(*point, Saturating(60)(*point));
  }
}

}  // namespace
}  // namespace troupe::cluster
