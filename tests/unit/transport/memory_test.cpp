#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <vector>

#include "base/random.hpp"
#include "transport/host_id.hpp"
#include "transport/host_region.hpp"
#include "transport/memory_file.hpp"
#include "transport/range_allocator.hpp"

namespace troupe::transport {
namespace {

using Access = MemoryFile::Access;

TEST(MemoryFile, IsSharedThroughItsDescriptor) {
  auto made = MemoryFile::Create("test", Bytes(5000));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->size(), KiB(8));
  auto opened = MemoryFile::Open(UniqueFd(dup(made->fd())), Access::kReadOnly);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->size(), KiB(8));
  made->data()[4999] = std::byte{7};
  EXPECT_EQ(opened->data()[4999], std::byte{7});
  EXPECT_TRUE(opened->Contains(8192, 0));
  EXPECT_FALSE(opened->Contains(8191, 2));
  EXPECT_FALSE(opened->Contains(1, ~std::uint64_t{0}));
}

TEST(MemoryFile, CannotBeShrunkByAPeer) {
  auto made = MemoryFile::Create("test", KiB(8));
  EXPECT_NE(ftruncate(made->fd(), 0), 0);
  EXPECT_NE(ftruncate(made->fd(), 1 << 20), 0);
}

TEST(MemoryFile, OnlyItsCreatorMayWrite) {
  auto made = MemoryFile::Create("test", KiB(8), {false, true});
  ASSERT_TRUE(made.ok()) << made.status();
  made->data()[0] = std::byte{1};
  EXPECT_FALSE(MemoryFile::Open(UniqueFd(dup(made->fd())), Access::kReadWrite).ok());
  EXPECT_TRUE(MemoryFile::Open(UniqueFd(dup(made->fd())), Access::kReadOnly).ok());
}

TEST(MemoryFile, RefusesWhatIsNoSealedMemory) {
  EXPECT_TRUE(absl::IsInvalidArgument(MemoryFile::Create("test", Bytes(0)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(MemoryFile::Create("test", Bytes(~std::uint64_t{0})).status()));
  EXPECT_FALSE(MemoryFile::Open(UniqueFd(), Access::kReadOnly).ok());
  EXPECT_FALSE(MemoryFile::Open(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)), Access::kReadOnly).ok());
  UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(MemoryFile::Open(std::move(unsealed), Access::kReadOnly).status()));
}

TEST(MemoryFile, FallsBackWithoutHugePages) {
  auto made = MemoryFile::Create("test", KiB(8), {true, false});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->size(), made->huge_pages() ? MiB(2) : KiB(8));
  made->data()[0] = std::byte{1};
}

TEST(RangeAllocator, CoalescesWithBothNeighbours) {
  RangeAllocator ranges(0, KiB(1), Bytes(64));
  const auto a = ranges.Allocate(Bytes(256));
  const auto b = ranges.Allocate(Bytes(256));
  const auto c = ranges.Allocate(Bytes(512));
  ASSERT_TRUE(a && b && c);
  EXPECT_FALSE(ranges.Allocate(Bytes(1)));
  EXPECT_TRUE(ranges.Free(*a));
  EXPECT_TRUE(ranges.Free(*c));
  EXPECT_EQ(ranges.largest_free(), Bytes(512));
  EXPECT_TRUE(ranges.Free(*b));
  EXPECT_EQ(ranges.largest_free(), KiB(1));
  EXPECT_FALSE(ranges.Free(*b)) << "the range was freed twice";
  EXPECT_FALSE(ranges.Free(7));
}

TEST(RangeAllocator, TakesTheTightestRange) {
  RangeAllocator ranges(4096, KiB(4), Bytes(64));
  const auto wide = ranges.Allocate(KiB(1));
  const auto wall = ranges.Allocate(Bytes(64));
  const auto narrow = ranges.Allocate(Bytes(128));
  const auto rest = ranges.Allocate(Bytes(64));
  ASSERT_TRUE(wide && wall && narrow && rest);
  ASSERT_TRUE(ranges.Free(*wide) && ranges.Free(*narrow));
  EXPECT_EQ(ranges.Allocate(Bytes(100)), narrow);
  EXPECT_FALSE(ranges.Allocate(Bytes(~std::uint64_t{0})));
}

TEST(RangeAllocator, StaysDisjointUnderChurn) {
  RangeAllocator ranges(4096, KiB(256), Bytes(64));
  std::map<std::uint64_t, std::uint64_t> living;
  Random random(3);
  for (int step = 0; step < 20000; ++step) {
    if (random.Below(2) == 0 || living.empty()) {
      const std::uint64_t size = random.Below(9000);
      const auto offset = ranges.Allocate(Bytes(size));
      if (!offset) {
        ASSERT_LT(ranges.largest_free(), Bytes(size));
        continue;
      }
      ASSERT_GE(*offset, 4096U);
      ASSERT_LE(*offset + size, 4096U + KiB(256).count());
      const auto next = living.lower_bound(*offset);
      if (next != living.end()) {
        ASSERT_LE(*offset + size, next->first);
      }
      if (next != living.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, *offset);
      }
      living.emplace(*offset, size);
    } else {
      const auto victim = std::next(living.begin(), static_cast<long>(random.Below(living.size())));
      ASSERT_TRUE(ranges.Free(victim->first));
      living.erase(victim);
    }
  }
  for (const auto& [offset, size] : living) ASSERT_TRUE(ranges.Free(offset));
  EXPECT_EQ(ranges.used(), Bytes(0));
  EXPECT_EQ(ranges.largest_free(), KiB(256));
}

TEST(HostRegion, IsReadThroughAView) {
  auto region = HostRegion::Create("region", {MiB(1), false});
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ((*region)->capacity(), MiB(1));
  auto range = (*region)->Allocate(Bytes(10000));
  ASSERT_TRUE(range.ok()) << range.status();
  auto bytes = (*region)->Writable(*range);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  (*bytes)[9999] = std::byte{5};
  auto view = HostRegionView::Open(UniqueFd(dup((*region)->fd())));
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->generation(), (*region)->generation());
  auto read = view->Resolve(*range);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)[9999], std::byte{5});
  EXPECT_TRUE((*region)->Free(*range).ok());
  EXPECT_TRUE(absl::IsNotFound((*region)->Free(*range)));
  EXPECT_TRUE(absl::IsNotFound((*region)->Writable(*range).status()));
  EXPECT_EQ((*region)->used(), Bytes(0));
}

TEST(HostRegion, RefusesBadRangesAndOtherFiles) {
  auto region = HostRegion::Create("region", {MiB(1), false});
  EXPECT_TRUE(absl::IsResourceExhausted((*region)->Allocate(MiB(2)).status()));
  auto view = HostRegionView::Open(UniqueFd(dup((*region)->fd())));
  auto refused = [&](std::uint64_t offset, std::uint64_t length) {
    proto::RegionRange range;
    range.set_offset(offset);
    range.set_length(length);
    return absl::IsOutOfRange(view->Resolve(range).status());
  };
  EXPECT_TRUE(refused(0, 16));
  EXPECT_TRUE(refused(4096, MiB(1).count() + 1));
  EXPECT_TRUE(refused(~std::uint64_t{0}, 2));
  EXPECT_TRUE(refused(8192, ~std::uint64_t{0} - 4096));
  auto zeros = MemoryFile::Create("zeros", MiB(1));
  EXPECT_TRUE(absl::IsInvalidArgument(HostRegionView::Open(UniqueFd(dup(zeros->fd()))).status()));
}

TEST(HostId, IsStableAndIdsDiffer) {
  EXPECT_EQ(HostId(), HostId());
  EXPECT_GT(HostId().size(), 36U);
  EXPECT_NE(UniqueId(), UniqueId());
}

}  // namespace
}  // namespace troupe::transport
