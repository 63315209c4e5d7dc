// What the memory of tensors between steps is made of.
#include "gpu/memory/intermediates.hpp"

#include <set>

#include "gmock/gmock.h"
#include "gpu/memory/fixed_region.hpp"
#include "gpu/memory/memory_pressure.hpp"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

TEST(Intermediates, NamesAreFoundAndOthersAreRefused) {
  EXPECT_TRUE(FindIntermediates("")->moves && FindIntermediates("")->ahead);
  EXPECT_EQ(FindIntermediates("host-only")->percent, 0u);
  for (const auto& entry : Intermediates()) EXPECT_TRUE(FindIntermediates(entry.name).ok()) << entry.name;
  EXPECT_THAT(FindIntermediates("elastik").status().message(), HasSubstr("elastic"));
}

TEST(MemoryPressure, WhatWasLackingIsExpectedForOneWindowMore) {
  MemoryPressure pressure{seconds(1)};
  const Time start{seconds(100)};
  EXPECT_EQ(pressure.Expected(start), Bytes(0));
  pressure.Lacked(MiB(2));
  pressure.Lacked(MiB(1));
  EXPECT_EQ(pressure.Expected(start + milliseconds(1)), MiB(2));
  EXPECT_EQ(pressure.Expected(start + milliseconds(1000)), MiB(2)) << "the next window";
  pressure.Lacked(MiB(1));
  EXPECT_EQ(pressure.Expected(start + milliseconds(1999)), MiB(2));
  EXPECT_EQ(pressure.Expected(start + milliseconds(2000)), MiB(1));
  EXPECT_EQ(pressure.Expected(start + milliseconds(3000)), Bytes(0));
}

// No byte of the region is touched: an address is enough.
DeviceRange RegionOf(Bytes size) {
  return {reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40), size};
}

TEST(FixedRegion, PiecesLieInItAndDoNotOverlap) {
  FixedRegion region(RegionOf(KiB(64)));
  const std::byte* const begin = region.region().address;
  std::set<const std::byte*> places;
  std::vector<DeviceRange> pieces;
  while (const auto piece = region.Allocate(Bytes(5000))) {  // two units
    EXPECT_GE(piece->address, begin);
    EXPECT_LE(piece->address + piece->size.count(), begin + KiB(64).count());
    EXPECT_TRUE(places.insert(piece->address).second);
    pieces.push_back(*piece);
  }
  EXPECT_EQ(pieces.size(), 8u);
  EXPECT_EQ(region.Allocate(Bytes(1)), std::nullopt);
  region.Free(pieces[3]);
  EXPECT_EQ(region.Allocate(Bytes(8193)), std::nullopt);
  EXPECT_EQ(region.Allocate(KiB(8))->address, pieces[3].address);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    region.Free(i == 3 ? DeviceRange{pieces[3].address, KiB(8)} : pieces[i]);
  EXPECT_EQ(region.Allocate(KiB(64))->address, begin);
}

TEST(FixedRegion, WhatIsLargerThanItFindsNoRoom) {
  FixedRegion region(RegionOf(KiB(64)));
  EXPECT_EQ(region.Allocate(KiB(64) + Bytes(1)), std::nullopt);
  EXPECT_EQ(region.Allocate(Bytes(~std::uint64_t{0})), std::nullopt);
  EXPECT_EQ(FixedRegion(RegionOf(Bytes(100))).Allocate(Bytes(1)), std::nullopt) << "less than a unit";
}

TEST(FixedRegion, AVeryLargeOneHasLargerUnits) {
  FixedRegion region(RegionOf(GiB(128)));
  const auto first = region.Allocate(Bytes(1));
  const auto second = region.Allocate(GiB(60));
  ASSERT_TRUE(first && second);
  EXPECT_GE(second->address, first->address + KiB(16).count());
}

}  // namespace
}  // namespace troupe::gpu
