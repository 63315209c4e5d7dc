// A million random allocations and frees on every space: ranges never overlap or leave the quota, the
// accounting is right after each, and bytes that are reported free can be allocated.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "gpu/memory/device_calls.hpp"
#include "gpu/memory/partition_space.hpp"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

constexpr Bytes kQuota = MiB(256);
constexpr int kSteps = 1'000'000;

struct SpaceKind {
  const char* name;
  Bytes waste;  // the most that rounding may cost one range
  std::function<std::unique_ptr<MemorySpace>(Bytes)> make;
};

// The bytes of the quota that are taken, as seen from outside of the space. A byte for each unit would cost
// more than the space under test, so only begins and ends are kept, in order.
class Witness {
 public:
  explicit Witness(Bytes quota) : quota_(quota) {}
  void Add(std::uint64_t begin, Bytes size) {
    const std::uint64_t end = begin + std::max<std::uint64_t>(size.count(), 1);
    ASSERT_EQ(begin % 256, 0u);
    ASSERT_LE(end, quota_.count()) << "a range leaves the quota";
    const auto next = taken_.lower_bound(begin);
    ASSERT_TRUE(next == taken_.end() || end <= next->first) << "two ranges overlap";
    ASSERT_TRUE(next == taken_.begin() || std::prev(next)->second <= begin) << "two ranges overlap";
    taken_.emplace_hint(next, begin, end);
  }
  void Remove(std::uint64_t begin) { ASSERT_EQ(taken_.erase(begin), 1u); }

 private:
  const Bytes quota_;
  std::map<std::uint64_t, std::uint64_t> taken_;
};

struct Held {
  std::uint64_t offset;
  Bytes size;
  Bytes occupied;
};

class SpaceProperty : public testing::TestWithParam<SpaceKind> {
 protected:
  // Sizes are mostly those of runs, some those of weights, and at times tiny or absurd.
  Bytes RandomSize() {
    const std::uint64_t kind = random_.Below(100);
    if (kind < 2) return Bytes(random_.Below(3));
    if (kind < 60) return Bytes(random_.Below(KiB(64).count()));
    if (kind < 90) return Bytes(random_.Below(MiB(1).count()));
    if (kind < 99) return Bytes(random_.Below(MiB(24).count()));
    return Bytes(random_.Below(MiB(300).count()));
  }

  void Take() {
    const Bytes size = RandomSize();
    const std::string digest = "model-" + std::to_string(random_.Below(20));
    const MemoryUser user{random_.Below(3) == 0 ? MemoryUser::Kind::kWeights : MemoryUser::Kind::kRun,
                          digest};
    const std::optional<std::uint64_t> offset = space_->Allocate(user, size);
    if (!offset) {
      if (++refused_ % 50 == 0) {
        ASSERT_LT(space_->use().largest, std::max(size, Bytes(1)))
            << "the allocation was refused although it fits";
      }
      return;
    }
    const std::optional<Bytes> occupied = space_->Occupied(*offset);
    ASSERT_TRUE(occupied.has_value());
    ASSERT_GE(*occupied, size);
    ASSERT_LE((*occupied - size), GetParam().waste);
    witness_.Add(*offset, *occupied);
    used_ += *occupied;
    asked_ += size;
    held_.push_back({*offset, size, *occupied});
  }

  void GiveBack() {
    std::swap(held_[random_.Below(held_.size())], held_.back());
    const Held range = held_.back();
    held_.pop_back();
    ASSERT_TRUE(space_->Free(range.offset));
    witness_.Remove(range.offset);
    used_ -= range.occupied;
    asked_ -= range.size;
  }

  // The free bytes and the largest possible allocation are those that the space reports.
  void CheckUse() {
    const MemoryUse use = space_->use();
    ASSERT_EQ(use.total - use.free, used_);
    ASSERT_LE(use.largest, use.free);
    if (use.largest == Bytes(0)) return;
    const auto most = space_->Allocate({MemoryUser::Kind::kRun, "most"}, use.largest);
    ASSERT_TRUE(most.has_value()) << use.largest.count();
    ASSERT_TRUE(space_->Free(*most));
    ASSERT_FALSE(space_->Allocate({MemoryUser::Kind::kRun, "more"}, use.largest + Bytes(4096)).has_value());
  }

  Random random_{2024};
  std::unique_ptr<MemorySpace> space_ = GetParam().make(kQuota);
  Witness witness_{kQuota};
  std::vector<Held> held_;
  Bytes used_;
  Bytes asked_;
  int refused_ = 0;
};

TEST_P(SpaceProperty, AMillionRandomSteps) {
  const MemoryUse fresh = space_->use();
  EXPECT_EQ(fresh.free, fresh.total);
  EXPECT_EQ(fresh.total, kQuota);
  for (int step = 0; step < kSteps && !HasFatalFailure(); ++step) {
    // The space is filled and emptied in waves.
    const std::uint64_t taking = (step / 50'000) % 2 == 0 ? 55 : 45;
    if (held_.empty() || random_.Below(100) < taking) {
      Take();
    } else {
      GiveBack();
    }
    if (step % 10'000 == 0) CheckUse();
  }
  EXPECT_GT(refused_, 100) << "the quota was never full";
  while (!held_.empty() && !HasFatalFailure()) GiveBack();
  const MemoryUse after = space_->use();
  EXPECT_EQ(after.free, fresh.free);
  EXPECT_EQ(after.largest, fresh.largest) << "an empty space is whole again";
}

TEST_P(SpaceProperty, WhatIsNotAllocatedIsNotFreed) {
  const auto offset = space_->Allocate({MemoryUser::Kind::kWeights, "a"}, KiB(100));
  ASSERT_TRUE(offset.has_value());
  EXPECT_FALSE(space_->Free(*offset + 256));
  EXPECT_FALSE(space_->Free(~std::uint64_t{0}));
  EXPECT_TRUE(space_->Free(*offset));
  EXPECT_FALSE(space_->Free(*offset));
  EXPECT_FALSE(space_->Occupied(*offset).has_value());
}

TEST_P(SpaceProperty, SpacesOfAnySize) {
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{255}, std::uint64_t{256},
                                   std::uint64_t{4096}, std::uint64_t{1'000'000}, std::uint64_t{140} << 30}) {
    const std::unique_ptr<MemorySpace> space = GetParam().make(Bytes(size));
    const MemoryUse use = space->use();
    EXPECT_LE(use.total, Bytes(size));
    EXPECT_EQ(use.free, use.total);
    EXPECT_FALSE(space->Allocate({MemoryUser::Kind::kRun, "a"}, Bytes(size + 1)).has_value());
    EXPECT_FALSE(space->Allocate({MemoryUser::Kind::kRun, "a"}, Bytes(~std::uint64_t{0})).has_value());
    if (use.total == Bytes(0)) continue;
    const auto all = space->Allocate({MemoryUser::Kind::kWeights, "a"}, use.largest);
    ASSERT_TRUE(all.has_value()) << size;
    EXPECT_FALSE(space->Allocate({MemoryUser::Kind::kRun, "a"}, use.largest).has_value());
    EXPECT_TRUE(space->Free(*all));
    EXPECT_EQ(space->use().free, use.total);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Spaces, SpaceProperty,
    testing::Values(SpaceKind{"Partitions", PartitionSizes::For(kQuota).block,
                              [](Bytes size) { return std::make_unique<PartitionSpace>(size); }},
                    SpaceKind{"BlockCache", kQuota,
                              [](Bytes size) { return std::make_unique<BlockCache>(size, nullptr); }},
                    SpaceKind{"DeviceCalls", Bytes(256),
                              [](Bytes size) { return std::make_unique<DeviceCalls>(size, nullptr); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::gpu
