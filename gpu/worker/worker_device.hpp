// The device of a worker, with its memory and its links.
#pragma once

#include <memory>
#include <utility>

#include "gpu/device/device.hpp"
#include "gpu/memory/device_memory.hpp"
#include "gpu/sharing/gate_page.hpp"
#include "gpu/sharing/token_scheduler.hpp"
#include "gpu/swap/device_links.hpp"

namespace troupe::gpu {

struct WorkerDevice {
  // Probes the device's link while the device is empty, unless the size of groups is given: takes up to
  // DeviceLinks::kProbeBudget.
  WorkerDevice(std::unique_ptr<Device> d, const SwapOptions& swap, const MemoryOptions& options,
               const SharingOptions& shared, std::shared_ptr<GatePage> page)
      : device(std::move(d)),
        links(*device, swap),
        memory(*device, options),
        sharing(shared),
        gate(std::move(page)) {}

  std::unique_ptr<Device> device;  // ends last
  DeviceLinks links;
  DeviceMemory memory;
  SharingOptions sharing;
  std::shared_ptr<GatePage> gate;  // null: this worker has the device alone
};

}  // namespace troupe::gpu
