#include "gpu/memory/weight_window.hpp"

#include "base/random.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_memory/fake_plan.hpp"

namespace troupe::gpu {
namespace {

using test::FakePlan;

// A run may rely on this for any plan: from the moment at which a step's gate opens until the step has ended,
// all weights that it reads are in their places.
void ExpectSound(const FakePlan& plan, const WeightWindow& window) {
  ASSERT_EQ(window.needed.size(), plan.step_count());
  for (std::size_t i = 0; i < window.parts.size(); ++i) {
    const WindowPart& part = window.parts[i];
    EXPECT_EQ(part.offset % 64, 0u);
    EXPECT_EQ(part.place % 64, 0u);
    EXPECT_LE(part.place + part.length, window.size.count());
    EXPECT_LE(part.offset + part.length, plan.weights_bytes().count());
    EXPECT_LE(part.free_at, part.first) << "the part would wait for a step that waits for it";
    for (std::size_t j = 0; j < i; ++j) {
      const WindowPart& before = window.parts[j];
      EXPECT_LE(before.first, part.first);
      EXPECT_TRUE(before.offset + before.length <= part.offset || part.offset + part.length <= before.offset);
      const bool share = before.place < part.place + part.length && part.place < before.place + before.length;
      if (share) {
        EXPECT_GT(part.free_at, before.last) << "the part takes a place that is in use";
      }
    }
  }
  for (std::size_t step = 0; step < plan.step_count(); ++step) {
    for (const auto& [offset, length] : plan.step_weights(step)) {
      if (length == 0) continue;
      std::size_t at = 0;
      while (at < window.parts.size() &&
             (window.parts[at].offset > offset ||
              offset + length > window.parts[at].offset + window.parts[at].length))
        ++at;
      ASSERT_LT(at, window.needed[step]) << "step " << step << " does not wait for its weights";
      EXPECT_LE(window.parts[at].first, step);
      EXPECT_GE(window.parts[at].last, step);
    }
  }
}

FakePlan Chain(std::size_t steps, std::uint64_t bytes) {
  std::vector<FakePlan::Step> all;
  for (std::uint64_t i = 0; i < steps; ++i) all.push_back({{{i * bytes, bytes}}, Bytes(0)});
  return {Bytes(steps * bytes), std::move(all)};
}

TEST(WeightWindow, AChainNeedsThePartInUseAndThoseAhead) {
  const FakePlan plan = Chain(20, 4096);
  for (const std::uint64_t ahead : {0u, 4096u, 8192u}) {
    const WeightWindow window = PlanWindow(plan, Bytes(4096), Bytes(ahead));
    ExpectSound(plan, window);
    EXPECT_EQ(window.parts.size(), 20u);
    EXPECT_EQ(window.bytes, plan.weights_bytes());
    EXPECT_LE(window.size, Bytes(4096 + ahead + 4096));
    EXPECT_GE(window.size, Bytes(4096 + ahead));
  }
}

TEST(WeightWindow, SmallWeightsComeTogether) {
  const FakePlan plan = Chain(100, 256);
  const WeightWindow window = PlanWindow(plan, Bytes(2560), Bytes(2560));
  ExpectSound(plan, window);
  EXPECT_EQ(window.parts.size(), 10u);
  EXPECT_LT(window.size, Bytes(4 * 2560));
}

TEST(WeightWindow, WhatIsReadAgainStays) {
  // An embedding that the first and the last step read, with a chain of steps between.
  std::vector<FakePlan::Step> steps = {{{{0, 10'000}}, {}}};
  for (std::uint64_t i = 0; i < 10; ++i) steps.push_back({{{10'048 + i * 1024, 1024}}, {}});
  steps.push_back({{{64, 100}}, {}});
  const FakePlan plan(Bytes(10'048 + 10 * 1024), std::move(steps));
  const WeightWindow window = PlanWindow(plan, Bytes(1024), Bytes(1024));
  ExpectSound(plan, window);
  EXPECT_LT(window.size, Bytes(10'048 + 4 * 1024));
  EXPECT_EQ(window.parts.front().last, 11u);
}

TEST(WeightWindow, NothingToReadIsAnEmptyWindow) {
  const WeightWindow window =
      PlanWindow(FakePlan(Bytes(100), {{{}, {}}, {{{64, 0}}, {}}}), Bytes(10), Bytes(10));
  EXPECT_TRUE(window.parts.empty());
  EXPECT_EQ(window.size, Bytes(0));
  EXPECT_EQ(window.needed, (std::vector<std::uint32_t>{0, 0}));
}

TEST(WeightWindow, IsSoundForPlansOfAllKinds) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t bytes = 64 + random.Below(100'000);
    std::vector<FakePlan::Step> steps(1 + random.Below(40));
    for (FakePlan::Step& step : steps) {
      for (std::uint64_t i = random.Below(4); i > 0; --i) {
        const std::uint64_t offset = random.Below(bytes);
        step.weights.emplace_back(offset, random.Below(std::min<std::uint64_t>(bytes - offset, 9000) + 1));
      }
    }
    const FakePlan plan(Bytes(bytes), std::move(steps));
    const WeightWindow window =
        PlanWindow(plan, Bytes(1 + random.Below(20'000)), Bytes(random.Below(30'000)));
    ExpectSound(plan, window);
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace troupe::gpu
