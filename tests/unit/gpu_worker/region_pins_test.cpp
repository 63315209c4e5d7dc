// What of a host region is registered with a GPU: what orders name, while the pages stay.
#include "gpu/worker/region_pins.hpp"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr Duration kRegionPatience = std::chrono::seconds(30);
constexpr std::size_t kMany = std::size_t{1} << 20;

// Remembers what was registered, by its offset in the region, and can be told to wait in the middle.
class RegionPinsTest : public testing::Test {
 protected:
  using Chunk = std::pair<std::size_t, std::size_t>;
  void Open(Bytes size, bool gives_back) {
    region_ = *transport::HostRegion::Create(
        "pins", {.size = size, .gives_back = gives_back, .readers_register = true});
    auto view = *transport::HostRegionView::Open(transport::UniqueFd(dup(region_->fd())));
    begin_ = view.bytes().data();
    RegionPins::Calls calls;
    calls.add = [this](std::span<const std::byte> bytes) {
      std::unique_lock lock(mutex_);
      ++begun_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !held_; });
      if (refuse_) return absl::InternalError("no memory is registered here");
      added_.emplace_back(bytes.data() - begin_, bytes.size());
      now_.insert({bytes.data() - begin_, bytes.size()});
      changed_.notify_all();
      return absl::OkStatus();
    };
    calls.remove = [this](std::span<const std::byte> bytes) {
      const std::lock_guard lock(mutex_);
      EXPECT_EQ(now_.erase(static_cast<std::size_t>(bytes.data() - begin_)), 1u);
      changed_.notify_all();
    };
    calls.refused = [this](const absl::Status& why) {
      const std::lock_guard lock(mutex_);
      refused_.push_back(std::string(why.message()));
      changed_.notify_all();
    };
    pins_ = std::make_shared<RegionPins>(std::move(calls), std::move(view));
  }
  void TearDown() override { pins_.reset(); }
  std::span<const std::byte> At(const proto::RegionRange& range) {
    return {begin_ + range.offset(), range.length()};
  }
  template <class Condition>
  void Await(Condition condition) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kRegionPatience, condition));
  }
  void Hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }

  std::unique_ptr<transport::HostRegion> region_;
  const std::byte* begin_ = nullptr;
  std::shared_ptr<RegionPins> pins_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;  // guarded by mutex_, as all below
  bool refuse_ = false;
  int begun_ = 0;
  std::vector<Chunk> added_;
  std::map<std::size_t, std::size_t> now_;
  std::vector<std::string> refused_;
};

TEST_F(RegionPinsTest, WhatOrdersNameIsRegisteredInChunksTheUrgentFirst) {
  Open(MiB(200), false);
  const auto large = *region_->Allocate(RegionPins::kChunk + Bytes(kMany));
  const auto small = *region_->Allocate(Bytes(kMany));
  const auto never_named = *region_->Allocate(Bytes(kMany));
  Hold(true);
  pins_->Want(At(large), false);
  Await([this] { return begun_ == 1; });
  pins_->Want(At(small), true);
  EXPECT_EQ(pins_->state().registered, Bytes(0));
  EXPECT_EQ(pins_->state().wanted, RegionPins::kChunk + Bytes(2 * kMany));
  Hold(false);
  Await([this] { return added_.size() == 3; });
  const std::size_t at = large.offset();
  EXPECT_THAT(added_, ElementsAre(Pair(at, RegionPins::kChunk.count()), Pair(small.offset(), kMany),
                                  Pair(at + RegionPins::kChunk.count(), kMany)));
  for (const auto& [offset, size] : added_) EXPECT_LE(offset + size, never_named.offset());
  pins_->Want(At(large), true);  // it is registered already
  const auto last = *region_->Allocate(Bytes(kMany));
  pins_->Want(At(last), false);
  Await([this] { return added_.size() == 4; });
  EXPECT_EQ(added_[3], Chunk(last.offset(), kMany));
  while (pins_->state().wanted > Bytes(0)) std::this_thread::yield();
  EXPECT_EQ(pins_->state().registered, RegionPins::kChunk + Bytes(3 * kMany));
  pins_.reset();
  EXPECT_THAT(now_, IsEmpty());
}

TEST_F(RegionPinsTest, ARangeThatIsUsedAgainWithItsPagesStaysRegistered) {
  Open(MiB(8), false);
  const auto first = *region_->Allocate(Bytes(kMany));
  pins_->Want(At(first), false);
  Await([this] { return added_.size() == 1; });
  ASSERT_TRUE(region_->Free(first).ok());
  region_->GiveBack();
  const auto second = *region_->Allocate(Bytes(2 * kMany));
  ASSERT_EQ(second.offset(), first.offset());
  pins_->Want(At(second), false);
  Await([this] { return added_.size() == 2; });
  EXPECT_EQ(added_[1], Chunk(first.offset() + kMany, kMany)) << "only what was not registered yet";
}

TEST_F(RegionPinsTest, PagesThatWereExchangedAreLetGoOfBeforeTheNextOrder) {
  Open(MiB(8), true);
  const auto first = *region_->Allocate(Bytes(kMany));
  const auto other = *region_->Allocate(Bytes(kMany));
  pins_->Want(At(first), false);
  pins_->Want(At(other), false);
  Await([this] { return added_.size() == 2; });
  Hold(true);
  ASSERT_TRUE(region_->Free(first).ok());
  region_->GiveBack();
  const auto second = *region_->Allocate(Bytes(kMany));
  ASSERT_EQ(second.offset(), first.offset());
  pins_->Want(At(second), true);
  {
    const std::lock_guard lock(mutex_);
    EXPECT_THAT(now_, ElementsAre(Pair(other.offset(), kMany))) << "the order may copy from here on";
  }
  Hold(false);
  Await([this] { return now_.size() == 2; });
}

// Nothing names the range again: its old pages would stay in memory for as long as they are registered.
TEST_F(RegionPinsTest, PagesThatWereExchangedAreLetGoOfWithoutAnOrder) {
  Open(MiB(8), true);
  const auto range = *region_->Allocate(Bytes(kMany));
  pins_->Want(At(range), false);
  Await([this] { return now_.size() == 1; });
  ASSERT_TRUE(region_->Free(range).ok());
  region_->GiveBack();
  Await([this] { return now_.empty(); });
}

TEST_F(RegionPinsTest, PagesThatAreExchangedWhileTheyAreRegisteredCountForNothing) {
  Open(MiB(8), true);
  const auto first = *region_->Allocate(Bytes(kMany));
  Hold(true);
  pins_->Want(At(first), false);
  Await([this] { return begun_ == 1; });
  ASSERT_TRUE(region_->Free(first).ok());
  region_->GiveBack();
  const auto second = *region_->Allocate(Bytes(kMany));
  std::thread order([&] { pins_->Want(At(second), true); });
  Hold(false);
  order.join();
  Await([this] { return added_.size() == 2 && now_.size() == 1; });
}

// More ranges than the region remembers.
TEST_F(RegionPinsTest, AReaderThatComesLateLetsGoOfEverything) {
  Open(MiB(8), true);
  const auto kept = *region_->Allocate(Bytes(kMany));
  pins_->Want(At(kept), false);
  Await([this] { return now_.size() == 1; });
  for (std::size_t i = 0; i < transport::HostRegionHeader::kGivenBack + 1; ++i) {
    const auto range = *region_->Allocate(Bytes(4096));
    ASSERT_TRUE(region_->Free(range).ok());
    region_->GiveBack();
  }
  auto view = *transport::HostRegionView::Open(transport::UniqueFd(dup(region_->fd())));
  std::uint64_t since = 0;
  const auto told = view.GivenBackSince(since);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].size(), view.bytes().size());
  EXPECT_THAT(view.GivenBackSince(since), IsEmpty());
}

TEST_F(RegionPinsTest, WhatIsRefusedIsSaidOnceAndNothingMoreIsTried) {
  Open(MiB(8), false);
  refuse_ = true;
  const auto first = *region_->Allocate(Bytes(kMany));
  const auto second = *region_->Allocate(Bytes(kMany));
  pins_->Want(At(first), false);
  Await([this] { return refused_.size() == 1; });
  pins_->Want(At(second), true);
  EXPECT_EQ(pins_->state().wanted, Bytes(0));
  pins_.reset();
  EXPECT_EQ(begun_, 1);
  EXPECT_THAT(refused_, ElementsAre("no memory is registered here"));
}

}  // namespace
}  // namespace troupe::gpu
