// How a worker is set up: what its flags say.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/device/device.hpp"
#include "gpu/memory/device_memory.hpp"
#include "gpu/memory/intermediates.hpp"
#include "gpu/sharing/gate_page.hpp"
#include "gpu/sharing/token_scheduler.hpp"
#include "gpu/swap/device_links.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/meter_page.hpp"
#include "transport/link_state.hpp"
#include "transport/memory_file.hpp"

namespace troupe::gpu {

// Makes the device at the first adoption. For a virtual one the daemon brought memory and links; else both
// are empty.
struct DeviceParts {
  transport::UniqueFd memory;
  Bytes record;  // the end of that memory, which is not the device's (WeightRecord)
  std::shared_ptr<transport::LinkBuckets> links;
};
using DeviceOpener = std::function<absl::StatusOr<std::unique_ptr<Device>>(DeviceParts)>;

struct WorkerOptions {
  std::string socket;
  std::string node;
  std::uint32_t gpu = 0;
  Duration lease = std::chrono::seconds(30);
  Bytes arena = MiB(256);
  bool virtual_device = true;  // its memory and links come with the adoption
  bool allow_faults = false;
  DeviceOpener open_device;
  WorkerLimits limits;
  MemoryOptions memory;
  std::shared_ptr<MeterWriter> meter;  // null: the worker counts nothing
  SwapOptions swap;                    // its names have been checked
  SharingOptions sharing;
  IntermediatesOptions intermediates;  // its name has been checked
  std::shared_ptr<GatePage> gate;      // null: this worker has the device alone
};

}  // namespace troupe::gpu
