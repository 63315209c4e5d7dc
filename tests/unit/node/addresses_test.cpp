#include "node/models/addresses.hpp"

#include <string>
#include <vector>

#include "base/random.hpp"
#include "gtest/gtest.h"
#include "tests/unit/node/numbered.hpp"

namespace troupe::node {
namespace {

TEST(Addresses, FollowFromTheDigestAndStay) {
  Addresses mine;
  Addresses others;
  const std::uint64_t a = mine.Of(ModelNamed("a"), MiB(100));
  EXPECT_NE(a, 0u);
  EXPECT_EQ(a % Addresses::kUnit.count(), 0u);
  EXPECT_EQ(mine.Of(ModelNamed("a"), MiB(1)), a) << "the address does not depend on the size";
  (void)others.Of(ModelNamed("b"), MiB(7));
  EXPECT_EQ(others.Of(ModelNamed("a"), MiB(100)), a) << "another daemon chooses the same address";
  mine.Forget(ModelNamed("a"));
  mine.Forget(ModelNamed("a"));
  EXPECT_EQ(mine.Of(ModelNamed("a"), MiB(100)), a);
}

TEST(Addresses, NeverOverlapOrLeaveTheirRange) {
  Addresses addresses;
  Random random(1);
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> ranges;
  // Models of a TiB: each takes the addresses of a quarter of the others.
  for (int step = 0; step < 2000; ++step) {
    const std::string digest = "model-" + std::to_string(random() % 40);
    if (random() % 3 == 0) {
      addresses.Forget(ModelNamed(digest));
      ranges.erase(digest);
      continue;
    }
    if (ranges.contains(digest)) continue;
    const Bytes size = MiB(1 + random() % (1 << 20));
    const std::uint64_t begin = addresses.Of(ModelNamed(digest), size);
    if (begin == 0) continue;  // no gap is long enough
    ASSERT_GE(begin, Addresses::kBegin);
    ASSERT_LE(begin + size.count(), Addresses::kEnd);
    for (const auto& [other, range] : ranges) {
      ASSERT_TRUE(begin + size.count() <= range.first || range.second <= begin) << digest << ", " << other;
    }
    ranges[digest] = {begin, begin + size.count()};
  }
  EXPECT_GT(ranges.size(), 5u);
}

TEST(Addresses, WithoutRoomThereIsNone) {
  Addresses addresses;
  EXPECT_EQ(addresses.Of(ModelNamed("all and more"), Bytes(Addresses::kEnd)), 0u);
  EXPECT_NE(addresses.Of(ModelNamed("all"), Bytes(Addresses::kEnd - Addresses::kBegin)), 0u);
  EXPECT_EQ(addresses.Of(ModelNamed("one more"), Bytes(1)), 0u);
  addresses.Forget(ModelNamed("all"));
  EXPECT_NE(addresses.Of(ModelNamed("one more"), Bytes(1)), 0u);
}

}  // namespace
}  // namespace troupe::node
