#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "gpu/device/virtual_device.hpp"
#include "tests/unit/gpu_device/device_fixture.hpp"
#include "tests/unit/gpu_device/small_model.hpp"

namespace troupe::gpu::test {
namespace {

std::unique_ptr<Device> MakeVirtual(bool timed, BytesPerSecond bandwidth, std::size_t concurrency = 1) {
  VirtualDeviceOptions options;
  options.concurrency = concurrency;
  if (timed) {
    options.timed = *ComputeProfile::Parse("default 1ms");
  } else {
    options.builder = BuildFakePlan;
  }
  // Every other GPU is GPU 1 to this device.
  options.link_from = [](std::uint32_t gpu) { return absl::StrCat("gpu", gpu, ":gpu0"); };
  auto links = transport::LinkBuckets::Create(
      {{options.link_in, bandwidth}, {options.link_out, bandwidth}, {options.link_from(1), bandwidth}});
  auto memory = transport::MemoryFile::Create("test-device", MiB(16));
  TROUPE_CHECK(links.ok() && memory.ok(), "no memory for a small device");
  auto device = MakeVirtualDevice(std::move(options), *std::move(memory),
                                  std::make_shared<transport::LinkBuckets>(*std::move(links)));
  TROUPE_CHECK(device.ok(), "a virtual device could not be made");
  return *std::move(device);
}

}  // namespace

std::vector<DeviceKind> DevicesUnderTest() {
  return {{"VirtualReal", true, [] { return MakeVirtual(false, {6e9}); }},
          {"VirtualUnlimited", true, [] { return MakeVirtual(false, {0}); }},
          {"VirtualTimed", false, [] { return MakeVirtual(true, {6e9}); }},
          {"VirtualStreams", true, [] { return MakeVirtual(false, {6e9}, 3); }},
          {"VirtualTimedStreams", false, [] { return MakeVirtual(true, {6e9}, 3); }}};
}

}  // namespace troupe::gpu::test
