#include "base/share_ladder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/random.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;

// The SMs of an H100 or an H200: 132, split off in eights, four of them left over.
const ShareLadder kHopper(132, 8, 16);

TEST(ShareLadder, SharesAreEightsAndTheWhole) {
  EXPECT_EQ(kHopper.shares().size(), 17u);
  EXPECT_EQ(kHopper.shares().front(), 8u);
  EXPECT_EQ(kHopper.shares()[15], 128u);
  EXPECT_EQ(kHopper.shares().back(), 132u);
  EXPECT_THAT(ShareLadder(24, 8, 3).shares(), ElementsAre(8, 16, 24)) << "the whole is there once";
  EXPECT_THAT(ShareLadder(132, 0, 0).shares(), ElementsAre(132)) << "the driver cannot split the GPU";
  EXPECT_THAT(ShareLadder(4, 8, 0).shares(), ElementsAre(4)) << "the GPU is too small to be split";
}

TEST(ShareLadder, APercentageIsRoundedToTheNearest) {
  struct Case {
    std::uint32_t percent, sms;
  };
  for (const auto& [percent, sms] :
       {Case{1, 8}, Case{6, 8}, Case{9, 8}, Case{10, 16}, Case{12, 16}, Case{24, 32}, Case{50, 64},
        Case{60, 80}, Case{80, 104}, Case{97, 128}, Case{99, 132}, Case{100, 132}}) {
    const SmShare share = kHopper.For(percent);
    EXPECT_EQ(share.sms, sms) << percent;
    EXPECT_EQ(share.of, 132u);
    EXPECT_EQ(share.everywhere(), sms == 132) << percent;
    if (!share.everywhere()) {
      EXPECT_EQ(share.units * 8, sms);
    }
  }
  EXPECT_EQ(kHopper.For(0), SmShare());
  EXPECT_EQ(ShareLadder().For(12), SmShare()) << "the device knows nothing of SMs";
}

TEST(ShareLadder, PlacesAreFew) {
  EXPECT_THAT(kHopper.Places(8), ElementsAre(0, 8));
  EXPECT_THAT(kHopper.Places(7), ElementsAre(0, 7, 9));
  EXPECT_THAT(kHopper.Places(10), ElementsAre(0, 6));
  EXPECT_THAT(kHopper.Places(16), ElementsAre(0));
  EXPECT_TRUE(kHopper.Places(17).empty());
  std::size_t all = 0;
  for (std::uint32_t units = 1; units <= 16; ++units) all += kHopper.Places(units).size();
  EXPECT_EQ(all, 61u);
}

TEST(ShareGate, FastGSharesMixOfFunctionsFitsTogether) {
  ShareGate gate(kHopper, 64);
  std::vector<SmShare> running;
  for (const std::uint32_t percent : {12, 50, 12, 24}) {  // section 3.3's ResNet, BERT, RNNT
    const auto share = gate.Take(percent);
    ASSERT_TRUE(share) << percent;
    running.push_back(*share);
  }
  EXPECT_FALSE(gate.Take(6)) << "every SM is taken";
  gate.Give(running[0]);
  EXPECT_FALSE(gate.Take(24));
  EXPECT_TRUE(gate.Take(6));
  EXPECT_TRUE(gate.Take(6));
}

TEST(ShareGate, AFunctionWithoutAShareRunsBesideOthersOfThatKindAlone) {
  ShareGate gate(kHopper, 64);
  const auto one = gate.Take(0);
  const auto other = gate.Take(0);
  ASSERT_TRUE(one && other);
  EXPECT_FALSE(gate.Take(6));
  EXPECT_FALSE(gate.Take(100));
  gate.Give(*one);
  EXPECT_FALSE(gate.Take(6));
  gate.Give(*other);
  const auto share = gate.Take(6);
  ASSERT_TRUE(share);
  EXPECT_FALSE(gate.Take(0));
  EXPECT_FALSE(gate.Take(100));
  gate.Give(*share);
  const auto whole = gate.Take(100);
  ASSERT_TRUE(whole);
  EXPECT_FALSE(gate.Take(0) || gate.Take(6) || gate.Take(100));
  gate.Give(*whole);
  EXPECT_TRUE(gate.Take(0));
}

TEST(ShareGate, WithoutSharesFunctionsThatWantOneTakeTurns) {
  ShareGate gate(ShareLadder(132, 0, 0), 64);
  const auto share = gate.Take(12);
  ASSERT_TRUE(share);
  EXPECT_TRUE(share->everywhere());
  EXPECT_FALSE(gate.Take(12));
  gate.Give(*share);
  EXPECT_TRUE(gate.Take(12));
}

// In every order of takes and returns: no SM is given to two, each place was announced, and when nothing runs
// everything can.
TEST(ShareGate, NoTwoRunsHaveTheSameSms) {
  Random random(7);
  for (int world = 0; world < 200; ++world) {
    const auto units = static_cast<std::uint32_t>(random.Below(20));
    const ShareLadder ladder(units * 8 + 4, 8, units);
    ShareGate gate(ladder, 64);
    std::vector<SmShare> running;
    for (int step = 0; step < 200; ++step) {
      if (!running.empty() && random.Below(2) == 0) {
        std::swap(running[random.Below(running.size())], running.back());
        gate.Give(running.back());
        running.pop_back();
        continue;
      }
      const auto percent = static_cast<std::uint32_t>(random.Below(101));
      const auto share = gate.Take(percent);
      if (!share) {
        EXPECT_FALSE(running.empty());
        continue;
      }
      const auto sum = [&](std::uint32_t total, const SmShare& other) { return total + other.sms; };
      for (const SmShare& other : running) {
        EXPECT_EQ(share->sms == 0, other.sms == 0);
        EXPECT_FALSE(share->sms > 0 && share->begin < other.begin + other.units &&
                     other.begin < share->begin + share->units);
      }
      if (share->sms > 0 && !share->everywhere()) {
        EXPECT_THAT(ladder.Places(share->units), testing::Contains(share->begin));
      }
      running.push_back(*share);
      EXPECT_LE(std::accumulate(running.begin(), running.end(), 0u, sum), ladder.sms());
    }
    for (const SmShare& share : running) gate.Give(share);
    EXPECT_TRUE(gate.Take(100));
  }
}

}  // namespace
}  // namespace troupe
