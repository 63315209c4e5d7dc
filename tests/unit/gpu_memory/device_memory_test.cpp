#include "gpu/memory/device_memory.hpp"

#include "base/check.hpp"
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
  MemoryOptions Options(Bytes quota = Bytes(0)) { return {std::string(GetParam()), quota}; }
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

INSTANTIATE_TEST_SUITE_P(Policies, DeviceMemoryTest,
                         testing::Values("static", "fine", "fine-resilient", "block-cache", "device-malloc"),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace troupe::gpu
