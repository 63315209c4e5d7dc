// Models are moved out of the way of one that is too large for each of the holes between them.
#include <string>
#include <vector>

#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

constexpr std::size_t kSmallModel = 512 << 10;

class RoomMakerTest : public RunnerTest {
 protected:
  static std::string DigestOf(int i) { return "m" + std::to_string(i); }
  proto::HostCopy PlaceFilled(const std::string& digest, int value, std::size_t size) {
    return PlaceModel(*host_, digest, SmallModel(),
                      std::vector<std::byte>(size, static_cast<std::byte>(value)));
  }
  // Eight models fill the device, and every second one is evicted.
  void FillWithHoles() {
    for (int i = 0; i < 8; ++i) {
      SwapIn(static_cast<std::uint64_t>(i) + 1, PlaceFilled(DigestOf(i), i, kSmallModel));
      ASSERT_EQ(Code(static_cast<std::uint64_t>(i) + 1), 0);
    }
    for (int i = 0; i < 8; i += 2) residency_->Evict(DigestOf(i), ReplyFor(100));
    ASSERT_EQ(memory_->memory().free, MiB(2));
    ASSERT_LT(memory_->memory().largest, MiB(1));
  }
  std::vector<std::byte> WeightsOn(const std::string& digest) {
    const auto hold = residency_->table().Acquire(digest);
    std::vector<std::byte> bytes(hold.weights.size.count());
    EXPECT_TRUE(
        device_->MakeStream()->CopyOut(bytes, hold.weights, nullptr)->Wait(std::chrono::seconds(30)).ok());
    residency_->Release(digest, hold);
    return bytes;
  }
};

TEST_F(RoomMakerTest, WhatFitsButForTheHolesIsNotRefused) {
  FillWithHoles();
  SwapIn(20, PlaceFilled("big", 99, 3 * kSmallModel));
  EXPECT_EQ(Code(20), 0);
  for (int i = 1; i < 8; i += 2)
    EXPECT_TRUE(WeightsOn(DigestOf(i)) == std::vector<std::byte>(kSmallModel, static_cast<std::byte>(i)))
        << i;
  EXPECT_TRUE(WeightsOn("big") == std::vector<std::byte>(3 * kSmallModel, std::byte{99}));
  EXPECT_EQ(residency_->table().Resident().size(), 5u);
  EvictAll();
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
}

TEST_F(RoomMakerTest, ModelsInUseStayWhereTheyAre) {
  FillWithHoles();
  std::map<std::string, ModelTable::Hold> holds;
  for (int i = 1; i < 8; i += 2) holds[DigestOf(i)] = residency_->table().Acquire(DigestOf(i));
  const auto big = PlaceFilled("big", 99, 3 * kSmallModel);
  SwapIn(20, big);
  EXPECT_EQ(Code(20), CodeOf(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(outcomes_[20].no_fit().free(), MiB(2).count());
  for (const auto& [digest, hold] : holds) residency_->Release(digest, hold);
  SwapIn(21, big);
  EXPECT_EQ(Code(21), 0);
}

}  // namespace
}  // namespace troupe::gpu::test
