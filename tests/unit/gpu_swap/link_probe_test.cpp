#include "gpu/swap/link_probe.hpp"

#include "gpu/swap/device_links.hpp"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_swap/held_device.hpp"

namespace troupe::gpu::test {
namespace {

TEST(ElbowOf, IsTheSmallestSizeThatNearlyReachesTheBest) {
  EXPECT_EQ(ElbowOf({}), kUsualGroup);
  const std::vector<LinkPoint> v100 = {
      {KiB(256), {6e9}}, {KiB(512), {8e9}}, {MiB(1), {10e9}}, {MiB(2), {11.5e9}}, {MiB(4), {12e9}}};
  EXPECT_EQ(ElbowOf(v100), MiB(2));
  const std::vector<LinkPoint> flat = {{KiB(256), {2e9}}, {KiB(512), {2e9}}};
  EXPECT_EQ(ElbowOf(flat), KiB(256));
  const std::vector<LinkPoint> growing = {{KiB(256), {1e9}}, {KiB(512), {2e9}}, {MiB(1), {4e9}}};
  EXPECT_EQ(ElbowOf(growing), MiB(1));
}

std::unique_ptr<HeldDevice> Device(Bytes memory) {
  auto device = MakeHeldDevice(memory);
  device->Hold(false);
  return device;
}

TEST(ProbeLink, MeasuresAndGivesItsMemoryBack) {
  const auto device = Device(MiB(8));
  const LinkCurve curve = ProbeLink(*device, std::chrono::seconds(10));
  ASSERT_FALSE(curve.points.empty());
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    EXPECT_GT(curve.points[i].bandwidth.value, 0);
    EXPECT_EQ(curve.points[i].size, Bytes(KiB(256).count() << i));
  }
  EXPECT_LE(curve.points.back().size, MiB(2)) << "the probe takes at most a quarter of the device";
  EXPECT_EQ(curve.elbow, ElbowOf(curve.points));
  EXPECT_EQ(device->memory().free, device->memory().total);
}

TEST(ProbeLink, AFastLinkIsSharedInLargerBlocks) {
  EXPECT_EQ(BlockFor({}), MiB(2));
  EXPECT_EQ(BlockFor({12e9}), MiB(2));
  EXPECT_EQ(BlockFor({25e9}), MiB(8));
  EXPECT_EQ(BlockFor({55e9}), MiB(16));
}

TEST(ProbeLink, WithoutTimeOrRoomThereIsTheUsualSize) {
  EXPECT_EQ(ProbeLink(*Device(MiB(8)), Duration(0)).elbow, kUsualGroup);
  EXPECT_EQ(ProbeLink(*Device(KiB(512)), std::chrono::seconds(10)).elbow, kUsualGroup);
}

}  // namespace
}  // namespace troupe::gpu::test
