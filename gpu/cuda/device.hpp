// One real GPU behind the device interface.
#pragma once

#include <memory>
#include <string>

#include "gpu/cuda/context.hpp"
#include "gpu/cuda/green_contexts.hpp"
#include "gpu/cuda/memory.hpp"
#include "gpu/device/cuda_plugin.hpp"
#include "gpu/device/device.hpp"

namespace troupe::gpu::cuda {

// The GPU with what was taken of its memory. Everything that streams and plans refer to lives in it: destroy
// them first. `summary`: what of the machine is used, in one line.
[[nodiscard]] std::unique_ptr<Device> MakeDevice(std::unique_ptr<Context> context,
                                                 std::unique_ptr<GreenContexts> shares,
                                                 std::unique_ptr<Memory> memory, const CudaOptions& options,
                                                 std::string& summary);
// Before the driver is started, which reads it then. Streams beyond the connections to the hardware wait for each other:
// each lane has several, and so has each share of the SMs. What the operator has set stays.
void TakeConnections();
// Looks at the driver, the GPU and its memory, and says in one line what is wrong with it.
[[nodiscard]] CudaOpened Open(const CudaOptions& options);

}  // namespace troupe::gpu::cuda
