// DEVICE SETTINGS: what an operator chooses of the device of a GPU worker, and the names of the choices in options and
// command lines.
#pragma once

#include <array>

#include "base/enum_names.hpp"

namespace troupe::gpu {

// Of a worker's device "virtual:0" or "cuda:0": what stands before the number.
enum class DeviceKind {
  kVirtual,  // a part of this machine's memory and processors
  kCuda,     // a GPU of the driver
};
inline constexpr std::array<EnumName<DeviceKind>, 2> kDeviceKinds = {
    {{"virtual", DeviceKind::kVirtual}, {"cuda", DeviceKind::kCuda}}};

enum class ComputeMode {
  kReal,   // runs have real results
  kTimed,  // runs take as long as a profile says, and have no results
};
inline constexpr std::array<EnumName<ComputeMode>, 2> kComputeModes = {
    {{"real", ComputeMode::kReal}, {"timed", ComputeMode::kTimed}}};

// Where the weights of a model lie in device memory.
enum class WeightAddresses {
  kAdjacent,  // in one piece of memory
  kMapped,    // in blocks that need not be adjacent, mapped to an address that is the model's on every GPU
};
inline constexpr std::array<EnumName<WeightAddresses>, 2> kWeightAddresses = {
    {{"adjacent", WeightAddresses::kAdjacent}, {"mapped", WeightAddresses::kMapped}}};

// What a real GPU does with a launch that comes again: the option `cuda-graphs`.
enum class RepeatedLaunch {
  kReplayed,    // it is replayed from a recording of its steps (a CUDA graph)
  kStepByStep,  // each step is launched again
};
inline constexpr std::array<EnumName<RepeatedLaunch>, 2> kRepeatedLaunches = {
    {{"on", RepeatedLaunch::kReplayed}, {"off", RepeatedLaunch::kStepByStep}}};

// Our own kernels on a real GPU.
enum class KernelForm {
  kWhole,  // a thread for each element or a warp for each row
  kPersistent,  // as many blocks as run at a time on the SMs of the launch, and each goes on with the next piece of
                // the work (StreamBox, section 8)
};
inline constexpr std::array<EnumName<KernelForm>, 2> kKernelForms = {
    {{"whole", KernelForm::kWhole}, {"persistent", KernelForm::kPersistent}}};

}  // namespace troupe::gpu
