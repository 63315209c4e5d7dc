// What of arenas is registered with a GPU: the pages in which large tensors lay.
#include "gpu/worker/arena_pins.hpp"

#include <sys/mman.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

using Owner = ArenaPins::Owner;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr Duration kArenaPatience = std::chrono::seconds(30);
constexpr std::size_t kPage = 4096;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kArena = 512 * kMiB;

// An arena of sparse pages, and a device that remembers what of it is registered, by its offset.
class ArenaPinsTest : public testing::Test {
 protected:
  ArenaPinsTest() {
    void* const mapped = mmap(nullptr, kArena, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    begin_ = static_cast<const std::byte*>(mapped);
    arena_ = {mapped, [this](const void* arena) {
                const std::lock_guard lock(mutex_);
                EXPECT_THAT(now_, IsEmpty()) << "an arena was unmapped while some of it was registered";
                munmap(const_cast<void*>(arena), kArena);
                unmapped_ = true;
                changed_.notify_all();
              }};
  }
  ~ArenaPinsTest() override {
    pins_.reset();
    EXPECT_THAT(now_, IsEmpty()) << "all is let go of in the end";
    arena_.reset();
  }
  void Open(Bytes registered, Duration idle = std::chrono::hours(1)) {
    ArenaPins::Calls calls;
    calls.add = [this](std::span<const std::byte> bytes) -> absl::Status {
      const std::lock_guard lock(mutex_);
      ++asked_;
      changed_.notify_all();
      if (refuses_) return absl::InternalError("no memory is registered here");
      const auto at = static_cast<std::size_t>(bytes.data() - begin_);
      for (const auto& [from, size] : now_)
        EXPECT_TRUE(at + bytes.size() <= from || from + size <= at) << "twice, which a driver refuses";
      now_[at] = bytes.size();
      most_ = std::max(most_, Sum());
      return absl::OkStatus();
    };
    calls.remove = [this](std::span<const std::byte> bytes) {
      const std::lock_guard lock(mutex_);
      EXPECT_EQ(now_.erase(static_cast<std::size_t>(bytes.data() - begin_)), 1u);
      changed_.notify_all();
    };
    calls.refused = [this](Owner owner, const absl::Status& why) {
      const std::lock_guard lock(mutex_);
      refused_.emplace_back(owner, std::string(why.message()));
      changed_.notify_all();
    };
    pins_.emplace(std::move(calls), ArenaPins::Bounds{registered, idle});
  }
  ArenaPins::Lease Use(std::size_t at, std::size_t size, Owner owner = Owner::kWorker) {
    return pins_->Use({begin_ + at, size}, owner, arena_);
  }
  template <class Condition>
  void Await(Condition condition) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kArenaPatience, condition));
  }
  // Uses them until all of it is registered; the tensors are gone by then.
  void Bring(std::size_t at, std::size_t size) {
    (void)Use(at, size);
    Await([&] {  // by the device; then the table knows it, too
      std::size_t there = 0;
      for (const auto& [from, length] : now_) {
        if (from < at + size && at < from + length)
          there += std::min(from + length, at + size) - std::max(from, at);
      }
      return there >= size;
    });
    while (pins_->registered() < Bytes(Registered())) std::this_thread::yield();
  }
  std::size_t Registered() {
    const std::lock_guard lock(mutex_);
    return Sum();
  }
  [[nodiscard]] std::size_t Sum() const {
    std::size_t sum = 0;
    for (const auto& [from, size] : now_) sum += size;
    return sum;
  }
  std::map<std::size_t, std::size_t> Now() {
    const std::lock_guard lock(mutex_);
    return now_;
  }

  std::shared_ptr<const void> arena_;
  const std::byte* begin_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::size_t, std::size_t> now_;  // guarded by mutex_, as all below
  std::size_t most_ = 0;
  int asked_ = 0;
  bool refuses_ = false;
  bool unmapped_ = false;
  std::vector<std::pair<Owner, std::string>> refused_;
  std::optional<ArenaPins> pins_;
};

TEST_F(ArenaPinsTest, ThePagesOfALargeTensorAreRegisteredAndNoOthers) {
  Open(GiB(1));
  EXPECT_EQ(Use(kPage + 64, 2 * kMiB), nullptr) << "the first copy does not wait for it";
  Bring(kPage + 64, 2 * kMiB);
  EXPECT_THAT(Now(), ElementsAre(Pair(kPage, 2 * kMiB + kPage)));
  EXPECT_NE(Use(kPage + 64, 2 * kMiB), nullptr);
  // One that lies beside it shares a page with it, and one across both has both.
  Bring(2 * kMiB + kPage + 128, 3 * kMiB);
  EXPECT_THAT(Now(), ElementsAre(Pair(kPage, 2 * kMiB + kPage), Pair(2 * kMiB + 2 * kPage, 3 * kMiB)));
  EXPECT_NE(Use(kMiB, 2 * kMiB), nullptr);
  EXPECT_EQ(Use(100 * kMiB, ArenaPins::kLeast.count() - 1), nullptr);
  Bring(200 * kMiB, 2 * ArenaPins::kChunk.count());
  EXPECT_EQ(Now().count(100 * kMiB), 0u) << "a small one is copied as it lies";
  EXPECT_EQ(Now()[200 * kMiB], ArenaPins::kChunk.count()) << "much comes in chunks";
  EXPECT_EQ(pins_->registered(), Bytes(Registered()));
}

TEST_F(ArenaPinsTest, ForNewOnesTheOneUsedLongestAgoGoesUnlessACopyUsesIt) {
  Open(MiB(10));
  Bring(0, 4 * kMiB);
  Bring(20 * kMiB, 4 * kMiB);
  const auto copy = Use(0, 4 * kMiB);
  ASSERT_NE(copy, nullptr);
  (void)Use(20 * kMiB, 4 * kMiB);  // used later, but by no copy any more
  Bring(40 * kMiB, 4 * kMiB);
  EXPECT_THAT(Now(), ElementsAre(Pair(0, 4 * kMiB), Pair(40 * kMiB, 4 * kMiB)));
  EXPECT_LE(most_, 10 * kMiB);
  EXPECT_EQ(Use(60 * kMiB, 11 * kMiB), nullptr) << "more than all would have to go";
  // While copies use all of it there is room for no other: that one is copied as it lies.
  const auto second = Use(40 * kMiB, 4 * kMiB);
  ASSERT_NE(second, nullptr);
  (void)Use(80 * kMiB, 4 * kMiB);
  Bring(100 * kMiB, kMiB);  // fits beside them, and comes after
  EXPECT_EQ(Now().count(80 * kMiB), 0u);
  EXPECT_LE(most_, 10 * kMiB);
}

TEST_F(ArenaPinsTest, WhatNoCopyUsesForAWhileIsLetGoOfBeforeItsArena) {
  Open(GiB(1), std::chrono::milliseconds(100));
  auto copy = Use(0, 4 * kMiB);
  while (copy == nullptr) copy = Use(0, 4 * kMiB);
  arena_.reset();
  const int before = [&] {
    const std::lock_guard lock(mutex_);
    return asked_;
  }();
  EXPECT_GE(before, 1);
  EXPECT_FALSE(unmapped_);
  EXPECT_THAT(Now(), ElementsAre(Pair(0, 4 * kMiB))) << "a copy uses it";
  copy.reset();
  Await([&] { return unmapped_; });
  EXPECT_EQ(pins_->registered(), Bytes(0));
}

TEST_F(ArenaPinsTest, WhereNothingCanBeRegisteredItIsSaidOnceForEachKind) {
  Open(GiB(1));
  refuses_ = true;
  (void)Use(0, 4 * kMiB, Owner::kOthers);
  Await([&] { return refused_.size() == 1; });
  EXPECT_EQ(refused_[0].first, Owner::kOthers);
  EXPECT_EQ(Use(0, 4 * kMiB, Owner::kOthers), nullptr);
  {
    const std::lock_guard lock(mutex_);
    refuses_ = false;
  }
  // The worker's own arena is another matter; and what was refused is not asked for again.
  Bring(20 * kMiB, 4 * kMiB);
  EXPECT_EQ(asked_, 2);
  EXPECT_EQ(refused_.size(), 1u);
  EXPECT_THAT(Now(), ElementsAre(Pair(20 * kMiB, 4 * kMiB)));
}

}  // namespace
}  // namespace troupe::gpu
