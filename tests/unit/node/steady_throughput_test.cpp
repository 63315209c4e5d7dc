#include "node/profiling/steady_throughput.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace troupe::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// Runs of this length one after the other until it is steady; how many there were, up to `most`.
template <class Length>
std::uint64_t Load(SteadyThroughput& throughput, Length length, std::uint64_t most = 100'000) {
  Time now{};
  while (!throughput.steady() && throughput.ended() < most) {
    const Duration run = length();
    now += run;
    throughput.Ended(run, run / 2, now);
  }
  return throughput.ended();
}

TEST(SteadyThroughput, EvenRunsAreSteadyAfterThreeWindows) {
  SteadyThroughput throughput;
  const auto runs = Load(throughput, [] { return milliseconds(10); });
  EXPECT_EQ(runs, 1u + 3 * 25) << "the first run is not counted, and a window lasts a quarter of a second";
  const auto figures = throughput.Measure();
  EXPECT_NEAR(figures.runs_per_second, 100, 1e-6);
  EXPECT_EQ(figures.runs, 75u);
  EXPECT_EQ(figures.run, milliseconds(5));
  EXPECT_EQ(figures.p50, milliseconds(10));
}

TEST(SteadyThroughput, LongRunsAreCountedByFours) {
  SteadyThroughput throughput;
  EXPECT_EQ(Load(throughput, [] { return seconds(2); }), 1u + 3 * 4);
  EXPECT_NEAR(throughput.Measure().runs_per_second, 0.5, 1e-9);
}

// The first run brings the model: it is far longer, and not in the figures.
TEST(SteadyThroughput, TheFirstRunIsNotCounted) {
  SteadyThroughput throughput;
  bool first = true;
  Load(throughput,
       [&]() -> Duration { return std::exchange(first, false) ? Duration(seconds(5)) : milliseconds(10); });
  EXPECT_NEAR(throughput.Measure().runs_per_second, 100, 1e-6);
}

TEST(SteadyThroughput, RunsThatGetFasterAreNotSteadyUntilTheyStay) {
  SteadyThroughput throughput;
  double length = 0.1;
  Load(throughput, [&] {
    length = std::max(0.01, length * 0.99);
    return FromSeconds(length);
  });
  EXPECT_NEAR(throughput.Measure().runs_per_second, 100, 2);
}

// A function that may compute for 200 ms of each second: windows of a quarter of a second see all or nothing.
TEST(SteadyThroughput, QuotasAreMeasuredOverWholeWindowsOfTheirs) {
  SteadyThroughput throughput;
  std::uint64_t run = 0;
  const auto runs = Load(throughput, [&] { return ++run % 20 == 0 ? milliseconds(810) : milliseconds(10); });
  EXPECT_LT(runs, 2000u);
  EXPECT_NEAR(throughput.Measure().runs_per_second, 20, 0.6);
}

TEST(SteadyThroughput, NoiseEvensOutInLongerWindows) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> length(0.006, 0.014);
  SteadyThroughput throughput;
  EXPECT_LT(Load(throughput, [&] { return FromSeconds(length(random)); }), 20'000u);
  EXPECT_NEAR(throughput.Measure().runs_per_second, 100, 3);
}

TEST(SteadyThroughput, WhatNeverSettlesIsNeverSteady) {
  SteadyThroughput throughput;
  double length = 0.001;
  Load(
      throughput, [&] { return FromSeconds(length *= 1.01); }, 2000);
  EXPECT_FALSE(throughput.steady());
  EXPECT_THAT(throughput.Describe(), HasSubstr("runs/s"));
}

TEST(SteadyThroughput, PercentilesAreOfTheRunsThatAreCounted) {
  SteadyThroughput throughput(SteadyRule{.window = milliseconds(1), .runs = 100});
  std::uint64_t run = 0;
  Load(throughput, [&] { return milliseconds(run++ % 100 + 1); });
  const auto figures = throughput.Measure();
  EXPECT_EQ(figures.runs, 300u);
  EXPECT_EQ(figures.p50, milliseconds(50));
  EXPECT_EQ(figures.p90, milliseconds(90));
  EXPECT_EQ(figures.p99, milliseconds(99));
}

}  // namespace
}  // namespace troupe::node
