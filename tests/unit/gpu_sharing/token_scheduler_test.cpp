// Who may compute, where, and who goes first; by each policy of the `sharing` slot.
#include "gpu/sharing/token_scheduler.hpp"

#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_sharing/at.hpp"

namespace troupe::gpu {
namespace {

using std::chrono::milliseconds;
using test::At;

proto::GpuSharing Sharing(std::uint32_t sm, std::uint32_t request = 0, std::uint32_t limit = 0,
                          std::uint32_t instances = 0) {
  proto::GpuSharing sharing;
  sharing.set_sm_partition(sm);
  sharing.set_quota_request(request);
  sharing.set_quota_limit(limit);
  sharing.set_max_instances(instances);
  return sharing;
}

TokenScheduler Make(std::string_view policy, std::uint32_t concurrency = 1) {
  return TokenScheduler(
      {.name = std::string(policy), .policy = *FindSharingPolicy(policy), .concurrency = concurrency},
      ShareLadder(132, 8, 16));
}

// Begins runs of the function while there are instances and room for them; how many began.
std::vector<SmShare> BeginAll(TokenScheduler& tokens, const std::string& function, std::uint32_t sm,
                              Time now) {
  std::vector<SmShare> shares;
  while (tokens.MayBegin(function, now)) {
    const auto share = tokens.Begin(function, sm);
    if (!share) break;
    shares.push_back(*share);
  }
  return shares;
}

void JoinMany(TokenScheduler& tokens, const std::string& function, const proto::GpuSharing& sharing,
              int runs) {
  for (int i = 0; i < runs; ++i) tokens.Join(function, sharing, At(0));
}

TEST(SharingPolicy, AnUnknownNameIsRefusedWithTheNamesThereAre) {
  const auto policy = FindSharingPolicy("fair");
  ASSERT_FALSE(policy.ok());
  EXPECT_THAT(std::string(policy.status().message()),
              testing::HasSubstr("fast, fast-bypass, time-sharing, exclusive, racing"));
}

TEST(TokenScheduler, TwelvePercentComputeEightAtATime) {
  TokenScheduler tokens = Make("fast");
  JoinMany(tokens, "f", Sharing(12), 20);
  EXPECT_EQ(BeginAll(tokens, "f", 12, At(0)).size(), 8u);
}

TEST(TokenScheduler, SharesAddUpToTheWholeGpuAndNoMore) {
  TokenScheduler tokens = Make("fast");
  JoinMany(tokens, "f", Sharing(50), 4);
  JoinMany(tokens, "g", Sharing(24), 4);
  EXPECT_EQ(BeginAll(tokens, "f", 50, At(0)).size(), 2u);
  EXPECT_EQ(BeginAll(tokens, "g", 24, At(0)).size(), 0u);
}

TEST(TokenScheduler, WithoutAShareAsManyComputeAsTheGpuIsConfiguredFor) {
  TokenScheduler tokens = Make("fast", 3);
  JoinMany(tokens, "f", {}, 4);
  JoinMany(tokens, "g", {}, 2);
  EXPECT_EQ(BeginAll(tokens, "f", 0, At(0)).size(), 3u);
  EXPECT_EQ(BeginAll(tokens, "g", 0, At(0)).size(), 0u);
}

TEST(TokenScheduler, AFunctionWithAQuotaAndNoShareHasTheGpuForItself) {
  TokenScheduler tokens = Make("fast", 2);
  JoinMany(tokens, "q", Sharing(0, 50, 80), 1);
  JoinMany(tokens, "f", {}, 3);
  const auto alone = tokens.Begin("q", 0);
  ASSERT_TRUE(alone.has_value());
  EXPECT_FALSE(tokens.Begin("f", 0).has_value());
  tokens.Pause(*alone);
  const auto other = tokens.Begin("f", 0);
  ASSERT_TRUE(other.has_value());
  EXPECT_FALSE(tokens.Resume(*alone)) << "one other run is one too many";
  tokens.End("f", other);
  EXPECT_TRUE(tokens.Resume(*alone));
  tokens.End("q", alone);
  EXPECT_EQ(BeginAll(tokens, "f", 0, At(0)).size(), 2u);
}

TEST(TokenScheduler, AQuotaMakesOneInstanceUnlessMoreAreAskedFor) {
  TokenScheduler tokens = Make("fast");
  JoinMany(tokens, "f", Sharing(12, 30, 80), 8);
  EXPECT_EQ(BeginAll(tokens, "f", 12, At(0)).size(), 1u);
  JoinMany(tokens, "g", Sharing(12, 30, 80, 3), 8);
  EXPECT_EQ(BeginAll(tokens, "g", 12, At(0)).size(), 3u);
}

TEST(TokenScheduler, TheFunctionThatLacksMostOfItsRequestGoesFirst) {
  TokenScheduler tokens = Make("fast");
  tokens.Join("little", Sharing(12, 10, 50), At(0));
  tokens.Join("much", Sharing(12, 60, 80), At(0));
  tokens.Join("none", Sharing(12), At(0));
  EXPECT_LT(tokens.RankOf("much", At(0)), tokens.RankOf("little", At(0)));
  EXPECT_LT(tokens.RankOf("little", At(0)), tokens.RankOf("none", At(0)));
  tokens.Charge("much", milliseconds(550), At(0.6));
  EXPECT_LT(tokens.RankOf("little", At(0.6)), tokens.RankOf("much", At(0.6)));
  // Beyond what they request, functions are equals of those without a quota.
  tokens.Charge("much", milliseconds(100), At(0.7));
  tokens.Charge("none", milliseconds(60), At(0.7));
  EXPECT_EQ(tokens.RankOf("much", At(0.7)), tokens.RankOf("none", At(0.7)));
}

TEST(TokenScheduler, FunctionsWithoutAQuotaHaveAFloorTogether) {
  TokenScheduler tokens = Make("fast");
  tokens.Join("quota", Sharing(100, 100, 100), At(0));
  tokens.Join("a", {}, At(0));
  tokens.Join("b", {}, At(0));
  tokens.Charge("quota", milliseconds(960), At(0.96));
  EXPECT_LT(tokens.RankOf("a", At(0.96)), tokens.RankOf("quota", At(0.96)))
      << "50 ms are theirs, 40 are left";
  tokens.Charge("a", milliseconds(50), At(0.98));
  EXPECT_GT(tokens.RankOf("b", At(0.98)), tokens.RankOf("quota", At(0.98)));
}

TEST(TokenScheduler, ARunPausesWhenItsWindowIsUsedUpAndOthersHaveItsSms) {
  TokenScheduler tokens = Make("fast");
  tokens.Join("f", Sharing(100, 10, 20), At(0));
  tokens.Join("g", Sharing(100), At(0));
  ASSERT_TRUE(tokens.MayBegin("f", At(0)));
  const auto share = tokens.Begin("f", 100);
  ASSERT_TRUE(share);
  EXPECT_FALSE(tokens.Begin("g", 100));
  EXPECT_TRUE(tokens.Charge("f", milliseconds(199), At(0.199)));
  EXPECT_FALSE(tokens.Charge("f", milliseconds(1), At(0.2)));
  tokens.Pause(*share);
  const auto other = tokens.Begin("g", 100);
  ASSERT_TRUE(other);
  EXPECT_FALSE(tokens.HasTime("f", At(0.9)));
  EXPECT_TRUE(tokens.HasTime("f", At(1)));
  EXPECT_FALSE(tokens.Resume(*share)) << "the other run has the SMs";
  tokens.End("g", *other);
  EXPECT_TRUE(tokens.Resume(*share));
  tokens.End("f", *share);
  tokens.Leave("f", At(1.1));
  tokens.Leave("g", At(1.1));
  EXPECT_TRUE(tokens.idle());
}

TEST(TokenScheduler, AChangedShareHoldsForTheNextRun) {
  TokenScheduler tokens = Make("fast");
  tokens.Join("f", Sharing(50), At(0));
  EXPECT_EQ(tokens.Begin("f", 50)->sms, 64u);
  tokens.Join("f", Sharing(24), At(0));
  EXPECT_EQ(tokens.Begin("f", 24)->sms, 32u);
}

TEST(TokenScheduler, ExclusiveKeepsTheGpuForOneFunctionUntilNoRunOfItIsLeft) {
  TokenScheduler tokens = Make("exclusive");
  JoinMany(tokens, "f", Sharing(12), 2);
  tokens.Join("g", Sharing(12), At(0));
  const auto first = tokens.Begin("f", 12);
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->everywhere());
  EXPECT_FALSE(tokens.Begin("f", 12)) << "one run at a time";
  tokens.End("f", *first);
  tokens.Leave("f", At(0.1));
  EXPECT_FALSE(tokens.MayBegin("g", At(0.1)));
  tokens.Leave("f", At(0.2));
  EXPECT_TRUE(tokens.MayBegin("g", At(0.2)));
}

TEST(TokenScheduler, RacingKnowsNeitherSharesNorQuotas) {
  TokenScheduler tokens = Make("racing");
  JoinMany(tokens, "f", Sharing(50, 10, 10, 8), 8);
  tokens.Charge("f", milliseconds(5000), At(0.1));
  EXPECT_EQ(BeginAll(tokens, "f", 50, At(0.2)).size(), 8u);
}

TEST(TokenScheduler, TimeSharingRunsOneAtATimeWithinQuotas) {
  TokenScheduler tokens = Make("time-sharing");
  JoinMany(tokens, "f", Sharing(12, 10, 30), 2);
  JoinMany(tokens, "g", Sharing(12, 10, 30), 2);
  const auto shares = BeginAll(tokens, "f", 12, At(0));
  ASSERT_EQ(shares.size(), 1u);
  EXPECT_FALSE(tokens.Begin("g", 12));
  tokens.Charge("f", milliseconds(300), At(0.3));
  tokens.End("f", shares[0]);
  EXPECT_FALSE(tokens.MayBegin("f", At(0.3)));
  EXPECT_TRUE(tokens.MayBegin("g", At(0.3)));
}

// Whatever happens to runs (they begin, pause, go on, end, are given up; functions are redeployed with other
// shares and quotas in the middle of a window), everything that was taken comes back.
TEST(TokenSchedulerProperty, WhatIsTakenComesBack) {
  struct Run {
    std::string function;
    std::uint32_t sm = 0;
    std::optional<SmShare> share{};
    bool paused = false;
  };
  for (const auto& policy : SharingPolicies()) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      std::mt19937_64 random(seed);
      TokenScheduler tokens = Make(policy.name, 2);
      std::vector<Run> runs;
      double now = 0;
      const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
      const auto finish = [&](std::size_t at) {
        const Run run = runs[at];
        if (run.share) tokens.End(run.function, run.paused ? std::nullopt : run.share);
        tokens.Leave(run.function, At(now));
        runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(at));
      };
      for (int step = 0; step < 500; ++step) {
        now += static_cast<double>(random() % 50) / 1000;
        const auto action = pick(5);
        if (action == 0 || runs.empty()) {
          const auto limit = static_cast<std::uint32_t>(pick(101));
          const auto request = limit == 0 ? 0 : static_cast<std::uint32_t>(pick(limit + 1));
          runs.push_back(
              {std::string(1, static_cast<char>('a' + pick(4))), static_cast<std::uint32_t>(pick(101))});
          tokens.Join(runs.back().function, Sharing(runs.back().sm, request, limit), At(now));
          continue;
        }
        const std::size_t at = pick(runs.size());
        Run& run = runs[at];
        if (action == 1 && !run.share && tokens.MayBegin(run.function, At(now))) {
          run.share = tokens.Begin(run.function, run.sm);
        } else if (action == 2 && run.share && !run.paused) {
          run.paused = !tokens.Charge(run.function, milliseconds(pick(200)), At(now));
          if (run.paused) tokens.Pause(*run.share);
        } else if (action == 3 && run.paused && tokens.HasTime(run.function, At(now))) {
          run.paused = !tokens.Resume(*run.share);
        } else if (action == 4) {
          finish(at);
        }
      }
      while (!runs.empty()) finish(0);
      EXPECT_TRUE(tokens.idle()) << policy.name << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace troupe::gpu
