#include "node/scheduling/place_order.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.hpp"

namespace troupe::node::place_order_test {
namespace {

std::vector<GpuPlace> First(const PlaceOrder& order, std::size_t most) {
  std::vector<GpuPlace> first;
  order.InOrder([&](const GpuPlace& place) {
    first.push_back(place);
    return first.size() < most;
  });
  return first;
}

TEST(PlaceOrder, TheLeastBusyIsFirstThenTheEmptiestThenTheFirstByIndex) {
  EXPECT_LT(GpuPlace::Of(9, 0, Bytes()), GpuPlace::Of(1, 1, GiB(80)));
  EXPECT_LT(GpuPlace::Of(9, 1, GiB(2)), GpuPlace::Of(1, 1, GiB(1)));
  EXPECT_LT(GpuPlace::Of(1, 1, GiB(1)), GpuPlace::Of(9, 1, GiB(1)));
  EXPECT_EQ(GpuPlace::Of(1, 7, GiB(1)).in_flight(), 7u);
}

TEST(PlaceOrder, GpusComeMoveAndGo) {
  Random random(3);
  PlaceOrder order;
  std::map<GpuIndex, GpuPlace> expected;
  for (int i = 0; i < 20'000; ++i) {
    const auto gpu = static_cast<GpuIndex>(random.Below(40));
    if (random.Below(5) == 0) {
      order.Set(gpu, std::nullopt);
      expected.erase(gpu);
    } else {
      const GpuPlace place =
          GpuPlace::Of(gpu, static_cast<std::uint32_t>(random.Below(4)), MiB(random.Below(8)));
      order.Set(gpu, place);
      expected[gpu] = place;
    }
    ASSERT_EQ(order.size(), expected.size());
    std::set<GpuPlace> sorted;
    for (const auto& [index, place] : expected) {
      sorted.insert(place);
      ASSERT_EQ(order.Find(index), place);
    }
    const std::vector<GpuPlace> all(sorted.begin(), sorted.end());
    // Most reads are of the first few places: the places beyond are sorted when they are read, and known
    // then.
    const std::size_t most = 1 + (random.Below(10) == 0 ? 100 : random.Below(5));
    ASSERT_EQ(First(order, most),
              std::vector<GpuPlace>(all.begin(), all.begin() + std::min(most, all.size())));
  }
}

}  // namespace
}  // namespace troupe::node::place_order_test
