#include "cluster/copies/model_relays.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.hpp"
#include "cluster/copies/fetch_policy.hpp"

namespace troupe::cluster {
namespace {

using ::testing::Eq;
using ::testing::Optional;

constexpr auto kHolders = std::nullopt;

TEST(ModelRelays, NodesBehindTheFirstFormAChain) {
  ModelRelays relays;
  EXPECT_EQ(relays.Begin("m", "b", 1), kHolders);
  EXPECT_THAT(relays.Begin("m", "c", 1), Optional(Eq("b")));
  EXPECT_THAT(relays.Begin("m", "d", 1), Optional(Eq("c")));
  EXPECT_THAT(relays.Begin("m", "e", 1), Optional(Eq("d")));
}

TEST(ModelRelays, WithoutHoldersTheManagerFeedsOneChain) {
  ModelRelays relays;
  EXPECT_EQ(relays.Begin("m", "a", 0), kHolders);
  EXPECT_THAT(relays.Begin("m", "b", 0), Optional(Eq("a")));
}

TEST(ModelRelays, EachHolderFeedsAChainAndTheChainsGrowAlike) {
  ModelRelays relays;
  EXPECT_EQ(relays.Begin("m", "c", 2), kHolders);
  EXPECT_EQ(relays.Begin("m", "d", 2), kHolders);
  EXPECT_THAT(relays.Begin("m", "e", 2), Optional(Eq("c")));
  EXPECT_THAT(relays.Begin("m", "f", 2), Optional(Eq("d")));
  EXPECT_THAT(relays.Begin("m", "g", 2), Optional(Eq("e")));
}

TEST(ModelRelays, ModelsHaveChainsOfTheirOwn) {
  ModelRelays relays;
  EXPECT_EQ(relays.Begin("m", "b", 1), kHolders);
  EXPECT_EQ(relays.Begin("n", "b", 1), kHolders);
  EXPECT_THAT(relays.Begin("n", "c", 1), Optional(Eq("b")));
}

TEST(ModelRelays, ANodeThatHasTheModelIsAHolderAndFeedsWhatFollowsIt) {
  ModelRelays relays;
  relays.Begin("m", "b", 1);
  relays.Begin("m", "c", 1);
  relays.Over("m", "b");
  EXPECT_EQ(relays.Begin("m", "d", 2), kHolders) << "a and b have it, and c alone takes it from one of them";
  EXPECT_THAT(relays.Begin("m", "e", 2), Optional(Eq("c")));
}

TEST(ModelRelays, ANodeThatIsGoneIsNotFollowed) {
  ModelRelays relays;
  relays.Begin("m", "b", 1);
  relays.Begin("m", "c", 1);
  relays.Begin("n", "c", 1);
  relays.NodeGone("c");
  EXPECT_THAT(relays.Begin("m", "d", 1), Optional(Eq("b")));
  EXPECT_EQ(relays.Begin("n", "d", 1), kHolders);
  relays.NodeGone("b");
  relays.NodeGone("d");
  EXPECT_EQ(relays.fetches(), 0u);
}

TEST(ModelRelays, ANodeThatBeginsAnewDoesNotFollowWhatFollowsIt) {
  ModelRelays relays;
  relays.Begin("m", "b", 1);
  relays.Begin("m", "c", 1);
  relays.Begin("m", "d", 1);
  // c and d wait for b's bytes.
  EXPECT_EQ(relays.Begin("m", "b", 1), kHolders);
  EXPECT_EQ(relays.fetches(), 3u);
  EXPECT_THAT(relays.Begin("m", "c", 1), Optional(Eq("b"))) << "d waits for c";
}

TEST(ModelRelays, WhatIsOverIsForgotten) {
  ModelRelays relays;
  relays.Over("m", "b");
  relays.Begin("m", "b", 1);
  relays.Over("m", "c");
  EXPECT_EQ(relays.fetches(), 1u);
  relays.Over("m", "b");
  EXPECT_EQ(relays.fetches(), 0u);
}

TEST(ModelRelays, PoliciesHaveNames) {
  EXPECT_EQ(*FindFetchPolicy("relay"), FetchPolicy::kRelay);
  EXPECT_EQ(*FindFetchPolicy("holders"), FetchPolicy::kHolders);
  EXPECT_FALSE(FindFetchPolicy("some").ok());
}

// Whatever nodes begin, end and leave: no node waits for itself, no fetch is followed by two that began after it, and nothing
// stays when all have ended.
TEST(ModelRelaysProperty, NoNodeWaitsForItself) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Random random(seed);
    ModelRelays relays;
    std::map<std::string, std::string> follows;  // of nodes that fetch, as they were told
    std::set<std::string> fetching;
    for (int step = 0; step < 200; ++step) {
      const auto node = absl::StrCat("n", random.Below(8));
      const auto what = random.Below(10);
      if (what < 6) {
        fetching.erase(node);
        const auto told = relays.Begin("m", node, random.Below(4));
        fetching.insert(node);
        follows[node] = told.value_or("");
        if (!told) continue;
        ASSERT_TRUE(fetching.contains(*told)) << "seed " << seed;
        std::set<std::string> seen{node};
        for (auto at = *told; fetching.contains(at) && !follows[at].empty(); at = follows[at])
          ASSERT_TRUE(seen.insert(at).second) << "seed " << seed << ": a circle with " << at;
        int followers = 0;
        for (const auto& other : fetching) followers += follows[other] == *told ? 1 : 0;
        ASSERT_EQ(followers, 1) << "seed " << seed;
      } else if (what < 9) {
        relays.Over("m", node);
        fetching.erase(node);
      } else {
        relays.NodeGone(node);
        fetching.erase(node);
      }
      ASSERT_EQ(relays.fetches(), fetching.size()) << "seed " << seed;
    }
    for (const auto& node : fetching) relays.Over("m", node);
    EXPECT_EQ(relays.fetches(), 0u);
  }
}

}  // namespace
}  // namespace troupe::cluster
