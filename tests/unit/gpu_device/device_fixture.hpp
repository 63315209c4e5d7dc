// The devices that the contract runs on.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gpu/device/device.hpp"

namespace troupe::gpu::test {

struct DeviceKind {
  const char* name;
  bool computes;  // real results; a timed device gives zeros
  std::function<std::unique_ptr<Device>()> make;
};
std::vector<DeviceKind> DevicesUnderTest();

}  // namespace troupe::gpu::test
