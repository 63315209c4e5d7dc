#include "storage/host_segments.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace troupe::storage {
namespace {

constexpr Bytes kPage = KiB(4);

class HostSegmentsTest : public testing::Test {
 protected:
  std::unique_ptr<HostSegments> Make(Bytes budget, bool isolated = true) {
    auto made = HostSegments::Create({.name = "test", .budget = budget, .isolated = isolated});
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  // A model whose weights are all `byte`.
  static absl::StatusOr<proto::HostCopy> Place(HostSegments& segments, const std::string& key,
                                               const std::string& digest, Bytes weights, int byte) {
    auto room = segments.Reserve(key, digest, kPage, weights);
    if (!room.ok()) return room.status();
    std::fill(room->weights.begin(), room->weights.end(), static_cast<std::byte>(byte));
    segments.Find(key)->Publish(digest);
    return *segments.Find(key)->Find(digest);
  }
  // The region as a worker sees it that was given this descriptor.
  static transport::HostRegionView View(const HostSegments::RegionPtr& region) {
    auto view = transport::HostRegionView::Open(transport::UniqueFd(::dup(region->fd())));
    EXPECT_TRUE(view.ok()) << view.status();
    return *std::move(view);
  }
  static bool Holds(const transport::HostRegionView& view, const proto::RegionRange& range, int byte) {
    const auto bytes = view.Resolve(range);
    return bytes.ok() && std::all_of(bytes->begin(), bytes->end(),
                                     [&](std::byte b) { return b == static_cast<std::byte>(byte); });
  }
  static std::uint64_t Backed(const HostSegments::RegionPtr& region) {
    struct stat info {};
    EXPECT_EQ(fstat(region->fd(), &info), 0);
    return static_cast<std::uint64_t>(info.st_blocks) * 512;
  }
};

TEST_F(HostSegmentsTest, AWorkerSeesTheModelsOfItsKeyAlone) {
  const auto segments = Make(MiB(1));
  const auto acme = Place(*segments, "tenant/acme", "m", KiB(64), 1);
  const auto bolt = Place(*segments, "tenant/bolt", "m", KiB(64), 2);
  ASSERT_TRUE(acme.ok() && bolt.ok());
  const auto seen = View(*segments->RegionOf("tenant/acme"));
  EXPECT_TRUE(Holds(seen, acme->weights(), 1));
  EXPECT_FALSE(Holds(seen, bolt->weights(), 2))
      << "the worker sees another tenant's copy where its own may lie";
  // The worker does not see them at any other place either: no memory that it maps has the other tenant's
  // bytes. A single byte of the region's own header may have any value.
  constexpr std::size_t kRow = 16;
  EXPECT_EQ(std::search_n(seen.bytes().begin(), seen.bytes().end(), kRow, std::byte{2}), seen.bytes().end());
  EXPECT_EQ(segments->usage().models, 2u);
}

TEST_F(HostSegmentsTest, AWorkerWithoutAKeySeesNothing) {
  const auto segments = Make(MiB(1));
  const auto copy = Place(*segments, "tenant/acme", "m", KiB(64), 1);
  ASSERT_TRUE(copy.ok());
  EXPECT_TRUE(absl::IsOutOfRange(View(segments->empty_region()).Resolve(copy->weights()).status()));
}

TEST_F(HostSegmentsTest, AWorkerCannotWriteWhatItMaps) {
  const auto segments = Make(MiB(1));
  const auto region = *segments->RegionOf("tenant/acme");
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd(), 0), MAP_FAILED);
  EXPECT_EQ(errno, EACCES);
  void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, region->fd(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_NE(mprotect(mapped, 4096, PROT_READ | PROT_WRITE), 0);
  EXPECT_NE(ftruncate(region->fd(), 0), 0);
  munmap(mapped, 4096);
}

TEST_F(HostSegmentsTest, AllKeysShareOneBudget) {
  const auto segments = Make(MiB(1));
  ASSERT_TRUE(Place(*segments, "tenant/acme", "m", KiB(700), 1).ok());
  const auto refused = Place(*segments, "tenant/bolt", "m", KiB(400), 2).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  auto& acme = *segments->Find("tenant/acme");
  ASSERT_TRUE(acme.Discard("m").ok());
  EXPECT_FALSE(Place(*segments, "tenant/bolt", "m", KiB(400), 2).ok())
      << "the pages of the discarded model are still there";
  HostSegments::GiveBack(segments->Regions());
  EXPECT_TRUE(Place(*segments, "tenant/bolt", "m", KiB(400), 2).ok());
  EXPECT_LE(segments->usage().used, segments->usage().capacity);
}

TEST_F(HostSegmentsTest, WhatWasFreedGoesBackToTheSystem) {
  const auto segments = Make(MiB(4));
  ASSERT_TRUE(Place(*segments, "tenant/acme", "m", MiB(2), 1).ok());
  const auto region = *segments->RegionOf("tenant/acme");
  const auto view = View(region);
  const auto full = Backed(region);
  EXPECT_GE(full, MiB(2).count());
  const auto copy = *segments->Find("tenant/acme")->Find("m");
  ASSERT_TRUE(segments->Find("tenant/acme")->Discard("m").ok());
  HostSegments::GiveBack(segments->Regions());
  EXPECT_LT(Backed(region), MiB(1).count());
  EXPECT_TRUE(Holds(view, copy.weights(), 0)) << "a worker that maps the region reads zeros";
  EXPECT_EQ(region->used(), Bytes());
  // Memory that was given back can be used again, several times.
  for (int i = 0; i < 3; ++i) {
    const auto again = Place(*segments, "tenant/acme", "n", MiB(3), 3 + i);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(Holds(view, again->weights(), 3 + i));
    ASSERT_TRUE(segments->Find("tenant/acme")->Discard("n").ok());
    HostSegments::GiveBack(segments->Regions());
  }
}

TEST_F(HostSegmentsTest, ASegmentWithoutModelsGoesWhenNoWorkerMapsIt) {
  const auto segments = Make(MiB(1));
  ASSERT_TRUE(Place(*segments, "tenant/acme", "m", KiB(64), 1).ok());
  auto region = *segments->RegionOf("tenant/acme");
  segments->DropEmpty();
  EXPECT_EQ(segments->size(), 1u) << "the segment has a model";
  ASSERT_TRUE(segments->Find("tenant/acme")->Discard("m").ok());
  segments->DropEmpty();
  EXPECT_EQ(segments->size(), 1u) << "a worker maps the segment, so that later models must come into it";
  EXPECT_EQ(*segments->RegionOf("tenant/acme"), region);
  region.reset();
  segments->DropEmpty();
  EXPECT_EQ(segments->size(), 0u);
}

TEST_F(HostSegmentsTest, ANodeWithoutIsolationHasTheSharedSegmentFromTheStart) {
  const auto segments = Make(MiB(1), false);
  EXPECT_EQ(segments->size(), 1u);
  EXPECT_EQ(segments->usage().capacity, MiB(1));
  ASSERT_TRUE(Place(*segments, "", "m", KiB(900), 1).ok());
  segments->DropEmpty();
  EXPECT_EQ(segments->size(), 1u);
  EXPECT_FALSE(Place(*segments, "function/f", "m", KiB(200), 1).ok()) << "all keys share one budget";
}

}  // namespace
}  // namespace troupe::storage
