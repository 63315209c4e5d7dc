#include "gpu/memory/device_memory.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "base/random.hpp"
#include "gmock/gmock.h"
#include "gpu/device/virtual_device.hpp"
#include "gtest/gtest.h"

namespace troupe::gpu {
namespace {

constexpr MemoryUser kModel{MemoryUser::Kind::kWeights, "sha256:a"};
constexpr MemoryUser kRun{MemoryUser::Kind::kRun, "sha256:a"};

std::unique_ptr<Device> MakeDevice(Bytes size) {
  VirtualDeviceOptions options;
  options.timed = *ComputeProfile::Parse("default 1ms");
  auto links = transport::LinkBuckets::Create({{options.link_in, {0}}, {options.link_out, {0}}});
  auto memory = transport::MemoryFile::Create("test-device", size);
  TROUPE_CHECK(links.ok() && memory.ok(), "no memory for a small device");
  auto device = MakeVirtualDevice(std::move(options), *std::move(memory),
                                  std::make_shared<transport::LinkBuckets>(*std::move(links)));
  TROUPE_CHECK(device.ok(), "a virtual device could not be made");
  return *std::move(device);
}

class DeviceMemoryTest : public testing::TestWithParam<std::string_view> {
 protected:
  MemoryOptions Options(Bytes quota = Bytes(0)) {
    MemoryOptions options;
    options.policy = GetParam();
    options.quota = quota;
    options.device_call = Duration(0);
    return options;
  }
  std::unique_ptr<Device> device_ = MakeDevice(MiB(16));
};

TEST_P(DeviceMemoryTest, TheQuotaComesFromTheDeviceAndGoesBackToIt) {
  {
    DeviceMemory memory(*device_, Options(MiB(4)));
    EXPECT_EQ(memory.memory().total, MiB(4));
    EXPECT_EQ(memory.memory().free, MiB(4));
    const auto range = memory.Allocate(kModel, MiB(1));
    ASSERT_TRUE(range.ok()) << range.status();
    EXPECT_EQ(range->size, MiB(1));
    EXPECT_EQ(memory.Allocate(kModel, MiB(4)).status().code(), absl::StatusCode::kResourceExhausted);
    memory.Free(*range);
    EXPECT_EQ(memory.memory().free, MiB(4));
  }
  EXPECT_EQ(device_->memory().free, MiB(16));
}

TEST_P(DeviceMemoryTest, AQuotaBeyondTheDeviceIsTheDevice) {
  DeviceMemory memory(*device_, Options(GiB(4)));
  EXPECT_EQ(memory.memory().total, MiB(16));
  EXPECT_EQ(DeviceMemory(*MakeDevice(MiB(1)), Options()).memory().total, MiB(1));
}

TEST_P(DeviceMemoryTest, AnEmptyRangeIsARangeAndAnEndlessOneIsRefused) {
  DeviceMemory memory(*device_, Options());
  const auto empty = memory.Allocate(kRun, Bytes(0));
  ASSERT_TRUE(empty.ok());
  memory.Free(*empty);
  EXPECT_FALSE(memory.Allocate(kRun, Bytes(~std::uint64_t{0})).ok());
}

TEST_P(DeviceMemoryTest, TheAccountingCloses) {
  DeviceMemory memory(*device_, Options());
  Random random(3);
  std::vector<DeviceRange> held;
  for (int step = 0; step < 3000; ++step) {
    if (held.empty() || random.Below(5) < 3) {
      const std::string digest = "m" + std::to_string(random.Below(5));
      const auto kind = random.Below(2) == 0 ? MemoryUser::Kind::kWeights : MemoryUser::Kind::kRun;
      const auto range = memory.Allocate({kind, digest}, Bytes(random.Below(1 << 20)));
      if (range.ok()) held.push_back(*range);
    } else {
      std::swap(held[random.Below(held.size())], held.back());
      memory.Free(held.back());
      held.pop_back();
    }
    ASSERT_LE(memory.memory().largest, memory.memory().free);
    ASSERT_LE(memory.pool().held() + memory.memory().free, memory.memory().total);
    ASSERT_LE(memory.fragmentation(), 1);
  }
  for (const DeviceRange& range : held) memory.Free(range);
  EXPECT_EQ(memory.memory().free, memory.memory().total);
  EXPECT_EQ(memory.pool().held(), Bytes(0));
  EXPECT_EQ(memory.pool().size(), Bytes(0)) << "no model is left for which the pool could be kept";
}

TEST(DeviceMemoryPool, WeightsLeaveAloneWhatIsSetAsideForRuns) {
  const auto device = MakeDevice(MiB(16));
  MemoryOptions options;
  options.policy = "static";
  DeviceMemory memory(*device, options);
  const auto weights = memory.Allocate(kModel, MiB(2));
  ASSERT_TRUE(weights.ok());
  memory.pool().Planned(kModel.digest, MiB(6));
  EXPECT_EQ(memory.memory().free, MiB(8));
  EXPECT_EQ(memory.memory().largest, MiB(8));
  EXPECT_FALSE(memory.Allocate({MemoryUser::Kind::kWeights, "b"}, MiB(9)).ok());
  const auto run = memory.Allocate(kRun, MiB(6));
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(memory.memory().free, MiB(8)) << "the run took the memory that was set aside";
  const auto other = memory.Allocate({MemoryUser::Kind::kWeights, "b"}, MiB(8));
  ASSERT_TRUE(other.ok()) << other.status();
  memory.Free(*run);
  EXPECT_EQ(memory.memory().free, Bytes(0));
  memory.Free(*weights);
  memory.Free(*other);
  EXPECT_EQ(memory.memory().free, MiB(16));
}

TEST_P(DeviceMemoryTest, ATrimmedRangeIsFreedAsAWhole) {
  DeviceMemory memory(*device_, Options());
  const DeviceRange weights = *memory.Allocate(kModel, MiB(1));
  DeviceRange range = *memory.Allocate(kRun, MiB(2));
  const Bytes before = memory.pool().held();
  memory.Trim(range, MiB(3));
  EXPECT_EQ(memory.pool().held(), before);
  memory.Trim(range, KiB(512));
  EXPECT_LE(memory.pool().held(), before);
  if (GetParam().starts_with("fine")) {
    EXPECT_EQ(range.size, KiB(512));
    EXPECT_EQ(memory.pool().held(), KiB(512));
  }
  memory.Free(range);
  memory.Free(weights);
  EXPECT_EQ(memory.pool().held(), Bytes(0));
  EXPECT_EQ(memory.memory().free, memory.memory().total);
}

TEST(DeviceMemoryPool, WhatIsPromisedToRunsStaysForThem) {
  const auto device = MakeDevice(MiB(16));
  DeviceMemory memory(*device, MemoryOptions());
  memory.Promise(MiB(6), MiB(6));
  EXPECT_EQ(memory.memory().free, MiB(10));
  EXPECT_EQ(memory.pool().size(), MiB(6));
  EXPECT_FALSE(memory.Allocate(kModel, MiB(11)).ok());
  // As many bytes would be left, but not in one range.
  std::vector<DeviceRange> held;
  for (auto range = memory.Allocate(kModel, MiB(1)); range.ok(); range = memory.Allocate(kModel, MiB(1)))
    held.push_back(*range);
  EXPECT_EQ(held.size(), 10u);
  EXPECT_TRUE(memory.KeepsPromise());
  memory.Free(held[0]);
  memory.Free(held[2]);
  memory.Free(held[4]);
  memory.Promise(MiB(1), MiB(7));
  EXPECT_FALSE(memory.KeepsPromise());
  EXPECT_FALSE(memory.Allocate(kModel, KiB(16)).ok()) << "a further allocation cannot make it worse";
  memory.Promise(Bytes(0), MiB(6));
  EXPECT_TRUE(memory.KeepsPromise());
  EXPECT_TRUE(memory.Allocate(kModel, MiB(1)).ok()) << "the range goes into a hole";
  EXPECT_FALSE(memory.Allocate(kModel, MiB(3)).ok()) << "there is no hole for the range beside the kept one";
  const auto run = memory.Allocate(kRun, MiB(6));
  EXPECT_TRUE(run.ok()) << run.status();
}

TEST(DeviceMemoryPool, MovedWeightsKeepTheirUser) {
  const auto device = MakeDevice(MiB(16));
  DeviceMemory memory(*device, MemoryOptions());
  std::vector<DeviceRange> held;
  for (int i = 0; i < 32; ++i)
    held.push_back(*memory.Allocate({MemoryUser::Kind::kWeights, std::to_string(i)}, KiB(512)));
  for (std::size_t i = 0; i < held.size(); ++i) {  // frees every second range
    memory.Free(held[i]);
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
  }
  EXPECT_GT(memory.fragmentation(), 0.5);
  const auto is_there = [](const std::byte*) { return true; };
  for (;;) {
    const auto moves = memory.Consolidate(is_there, MiB(64));
    if (moves.empty()) break;
    for (const auto& move : moves) {
      EXPECT_EQ(move.from.size, KiB(512));
      EXPECT_EQ(move.to.size, KiB(512));
      memory.Free(move.from);
      std::ranges::find(held, move.from.address, &DeviceRange::address)->address = move.to.address;
    }
  }
  EXPECT_LT(memory.fragmentation(), 0.1);
  EXPECT_GE(memory.memory().largest, MiB(7));
  for (const DeviceRange& range : held) memory.Free(range);
  EXPECT_EQ(memory.memory().free, MiB(16));
}

INSTANTIATE_TEST_SUITE_P(Policies, DeviceMemoryTest,
                         testing::Values("static", "fine", "fine-resilient", "block-cache", "device-malloc"),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace troupe::gpu
