#include "actors/seams/range_digests.hpp"

#include <gtest/gtest.h>

namespace troupe::actors {
namespace {

TEST(RangeDigests, AreFoundByObjectOffsetAndLength) {
  RangeDigests digests(10);
  EXPECT_EQ(digests.Find("a", 0, 4), std::nullopt);
  digests.Keep("a", 0, 4, "x");
  digests.Keep("a", 4, 4, "y");
  digests.Keep("b", 0, 4, "z");
  EXPECT_EQ(digests.Find("a", 0, 4), "x");
  EXPECT_EQ(digests.Find("a", 4, 4), "y");
  EXPECT_EQ(digests.Find("b", 0, 4), "z");
  EXPECT_EQ(digests.Find("a", 0, 3), std::nullopt);
  EXPECT_EQ(digests.Find("b", 4, 4), std::nullopt);
}

TEST(RangeDigests, AreBoundedAndTheObjectThatCameFirstIsForgotten) {
  RangeDigests digests(4);
  digests.Keep("a", 0, 4, "x");
  digests.Keep("a", 4, 4, "y");
  digests.Keep("b", 0, 4, "z");
  digests.Keep("b", 0, 4, "z");
  EXPECT_EQ(digests.size(), 3u) << "the same range is kept once";
  digests.Keep("b", 4, 4, "v");
  digests.Keep("b", 8, 4, "w");
  EXPECT_EQ(digests.Find("a", 0, 4), std::nullopt);
  EXPECT_EQ(digests.Find("b", 8, 4), "w");
  EXPECT_EQ(digests.size(), 3u);
}

// One object with more ranges than may be kept.
TEST(RangeDigests, AnObjectThatIsTooLargeIsForgottenAsAWhole) {
  RangeDigests digests(2);
  for (std::uint64_t i = 0; i < 5; ++i) digests.Keep("a", i, 1, "x");
  EXPECT_LE(digests.size(), 2u);
  digests.Keep("b", 0, 1, "y");
  EXPECT_EQ(digests.Find("b", 0, 1), "y");
}

}  // namespace
}  // namespace troupe::actors
