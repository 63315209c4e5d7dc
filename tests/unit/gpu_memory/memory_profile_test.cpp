#include "gpu/memory/memory_profile.hpp"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_memory/fake_plan.hpp"

namespace troupe::gpu {
namespace {

using test::FakePlan;
using testing::ElementsAre;
constexpr Duration kMs = std::chrono::milliseconds(1);

TEST(PlanWeights, PartsLiveFromTheirFirstReaderToTheirLast) {
  // The steps read the bytes 0-100, 100-250 and, once more, 0-40.
  const FakePlan plan(Bytes(300), {{{{0, 100}}, {}}, {{{100, 150}}, {}}, {{{0, 40}}, {}}});
  EXPECT_THAT(PlanWeights(plan, Bytes(50)),
              ElementsAre(WeightPart{0, 50, 0, 2}, WeightPart{50, 50, 0, 0}, WeightPart{100, 150, 1, 1}));
}

TEST(PlanWeights, APartThatTwoStepsShareLivesForBoth) {
  const FakePlan plan(Bytes(100), {{{{0, 30}}, {}}, {{{30, 70}}, {}}});
  EXPECT_THAT(PlanWeights(plan, Bytes(64)), ElementsAre(WeightPart{0, 64, 0, 1}, WeightPart{64, 36, 1, 1}));
}

TEST(PlanWeights, WhatNoStepReadsIsInNone) {
  const FakePlan plan(Bytes(100), {{{}, {}}, {{{64, 0}}, {}}});
  EXPECT_TRUE(PlanWeights(plan, Bytes(10)).empty());
  EXPECT_TRUE(PlanWeights(FakePlan(Bytes(0), {}), Bytes(10)).empty());
}

TEST(PlanWeights, EveryByteThatAStepReadsIsThereWhenItRuns) {
  const FakePlan plan(
      Bytes(1000),
      {{{{0, 333}, {900, 100}}, {}}, {{{333, 333}}, {}}, {{{500, 17}}, {}}, {{{666, 234}, {10, 1}}, {}}});
  for (const std::uint64_t granularity : {1u, 7u, 64u, 1000u, 5000u}) {
    const auto parts = PlanWeights(plan, Bytes(granularity));
    for (std::size_t step = 0; step < plan.step_count(); ++step) {
      for (const auto& [offset, length] : plan.step_weights(step)) {
        for (std::uint64_t byte = offset; byte < offset + length; ++byte) {
          const bool there = std::ranges::any_of(parts, [&](const WeightPart& part) {
            return part.offset <= byte && byte < part.offset + part.length && part.first <= step &&
                   step <= part.last;
          });
          ASSERT_TRUE(there) << byte << " in step " << step << " at granularity " << granularity;
        }
      }
    }
  }
}

TEST(MemoryProfile, CountsWhatEachStepNeeds) {
  const FakePlan plan(Bytes(300),
                      {{{{0, 100}}, Bytes(10)}, {{{100, 150}}, Bytes(30)}, {{{0, 40}}, Bytes(5)}});
  using Weights = MemoryProfile::Weights;
  using Activations = MemoryProfile::Activations;
  const MemoryProfile lazy(plan, 3 * kMs, Weights::kByLayer, Activations::kByLife, Bytes(50));
  EXPECT_EQ(lazy.At(0), Bytes(110));
  EXPECT_EQ(lazy.At(1), Bytes(50 + 150 + 30));
  EXPECT_EQ(lazy.At(2), Bytes(55));
  EXPECT_EQ(lazy.peak(), Bytes(230));
  EXPECT_EQ(lazy.MaxOf(2, 99), Bytes(55));
  const MemoryProfile whole(plan, 3 * kMs, Weights::kWhole, Activations::kWhole, Bytes(50));
  EXPECT_EQ(whole.At(2), Bytes(330));
  const MemoryProfile resident(plan, 3 * kMs, Weights::kResident, Activations::kByLife, Bytes(50));
  EXPECT_EQ(resident.peak(), Bytes(30));
}

TEST(MemoryProfile, KnowsTheStepByTheTime) {
  const MemoryProfile profile({Bytes(1), Bytes(2), Bytes(3), Bytes(4)}, 4 * kMs);
  EXPECT_EQ(profile.StepAfter(-kMs), 0u);
  EXPECT_EQ(profile.StepAfter(Duration(0)), 0u);
  EXPECT_EQ(profile.StepAfter(kMs * 5 / 2), 2u);
  EXPECT_EQ(profile.StepAfter(4 * kMs), 3u);
  EXPECT_EQ(profile.StepAfter(std::chrono::hours(1)), 3u);
  EXPECT_EQ(MemoryProfile({Bytes(1)}, Duration(0)).StepAfter(Duration(0)), 0u);
}

}  // namespace
}  // namespace troupe::gpu
