// THE CUDA PLUG-IN as the worker knows it: a shared object beside the worker that is loaded when there is a
// driver. Neither worker nor daemon links anything of CUDA; nothing of CUDA is included here.
//
// The plug-in takes what it needs of ours (base, transport, protobuf's messages) from the program that loads
// it, so that there is one copy of each; the two are built together, and the version check says when they
// were not (cuda_plugin_version.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "gpu/device/device.hpp"
#include "gpu/device/device_settings.hpp"

namespace troupe::gpu {

// Why there is no device. Each reason is another exit code of the worker (gpu/worker/exit_codes.hpp).
enum class CudaTrouble {
  kNone,
  kUsage,              // what was asked can never be: more memory than the GPU has
  kNoPlugin,           // not built, or of another build
  kNoDriver,           // libcuda.so.1 cannot be opened, or knows of no CUDA
  kDriverTooOld,       // for this plug-in
  kNoDevice,           // no GPU of this number
  kWrongArchitecture,  // the plug-in has no code for this GPU
  kOutOfMemory,        // the GPU refused memory that it said was free
  kBusy,               // another process holds the memory
  kTaken,              // the machine's settings keep this process off the GPU: compute mode, MPS, MIG
  kLost,               // it failed while it was opened
};
[[nodiscard]] const char* Name(CudaTrouble trouble);

struct CudaOptions {
  std::string name = "cuda:0";
  int ordinal = 0;  // of the driver's GPUs
  Bytes memory;     // that is taken at once and kept; zero: what is free, less what libraries need
  std::size_t concurrency = 1;  // launches at a time, each on a stream of its own
  KernelForm kernels = KernelForm::kWhole;
  WeightAddresses addresses = WeightAddresses::kAdjacent;
  RepeatedLaunch repeated = RepeatedLaunch::kReplayed;
  // The driver's library, as dlopen finds it.
  std::string driver = "libcuda.so.1";
  // cuBLAS and cuDNN, opened when a model needs them; cuBLASLt, when there is one.
  std::string blas = "libcublas.so.13";
  std::string blas_lt = "libcublasLt.so.13";
  std::string dnn = "libcudnn.so.9";
  // NCCL, for broadcasts to other GPUs; without it there are none.
  std::string nccl = "libnccl.so.2";
};

struct CudaOpened {
  CudaTrouble trouble = CudaTrouble::kNone;
  std::string why{};      // one line: what was asked, what was found, what to do
  std::string summary{};  // of a device: what of the machine it uses, in one line
  std::unique_ptr<Device> device{};
};

// What the plug-in exports, with C names: TroupeCudaVersion (a CudaVersionFunction) and TroupeCudaOpen.
using CudaVersionFunction = const char*();
using CudaOpenFunction = void(const CudaOptions& options, CudaOpened& opened);
inline constexpr char kCudaVersionSymbol[] = "TroupeCudaVersion";
inline constexpr char kCudaOpenSymbol[] = "TroupeCudaOpen";

// Where the build puts it: beside the program that runs.
[[nodiscard]] std::string CudaPluginPath();
// Looks for the driver first, then loads the plug-in and lets it open the device. What was loaded stays.
[[nodiscard]] CudaOpened OpenCuda(const std::string& plugin, const CudaOptions& options);

}  // namespace troupe::gpu
