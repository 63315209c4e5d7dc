// The device of a worker, with its memory, what lies there between runs, and its links.
#pragma once

#include <memory>
#include <utility>

#include "gpu/device/device.hpp"
#include "gpu/memory/device_memory.hpp"
#include "gpu/sharing/gate_page.hpp"
#include "gpu/sharing/token_scheduler.hpp"
#include "gpu/swap/device_links.hpp"
#include "gpu/worker/arena_pins.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/task_queue.hpp"
#include "gpu/worker/tensor_pulls.hpp"
#include "gpu/worker/tensor_store.hpp"

namespace troupe::gpu {

// They say in a line when the device registers nothing.
[[nodiscard]] std::unique_ptr<ArenaPins> PinsOn(Device& device, const SwapOptions& swap);

struct WorkerDevice {
  struct Options {
    SwapOptions swap{};
    MemoryOptions memory{};
    SharingOptions sharing{};
    IntermediatesOptions intermediates{};
  };
  // Probes the device's link while the device is empty, unless the size of groups is given: takes up to
  // DeviceLinks::kProbeBudget.
  WorkerDevice(std::unique_ptr<Device> d, TaskQueue& queue, const Options& options,
               const WorkerLimits& limits, std::shared_ptr<GatePage> page)
      : device(std::move(d)),
        arena_pins(PinsOn(*device, options.swap)),
        links(*device, options.swap),
        memory(*device, options.memory),
        tensors(memory, queue, links, options.intermediates),
        pulls(*device, tensors, queue, links, limits),
        sharing(options.sharing),
        gate(std::move(page)) {}

  std::unique_ptr<Device> device;  // ends last
  // Null: the device copies all memory alike, or its swap policy registers none. Ends when no transfer is left.
  std::unique_ptr<ArenaPins> arena_pins;
  DeviceLinks links;
  DeviceMemory memory;
  TensorStore tensors;  // that runs have left on it for later ones
  TensorPulls pulls;    // of such tensors from other GPUs
  SharingOptions sharing;
  std::shared_ptr<GatePage> gate;  // null: this worker has the device alone
};

}  // namespace troupe::gpu
