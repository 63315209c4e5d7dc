// From a name to a device, with a line for each thing that can be wrong on the way.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/cuda/device.hpp"

namespace troupe::gpu::cuda {
namespace {

// cuBLAS and cuDNN of this toolkit want a driver of its major version.
constexpr int kOldestDriver = CUDA_VERSION / 1000 * 1000;
// As large as the largest unit of the GPUs that we know.
constexpr Bytes kSmallest = MiB(2);
// The oldest architecture that kernels are built for (sm_80).
constexpr int kOldestMajor = 8;

std::string FormatVersion(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

CudaOpened Trouble(CudaTrouble trouble, const std::string& what) {
  return {.trouble = trouble, .why = absl::StrCat(Name(trouble), ": ", what)};
}

// Multi-process service: another process stands between this one and the GPU.
bool IsOfMps(CUresult result) {
  switch (result) {
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_MPS_SERVER_NOT_READY:
    case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED:
    case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
      return true;
    default:
      return false;
  }
}

// What of the memory is left to libraries (workspaces, their kernels), which allocate for themselves.
Bytes ReserveOf(Bytes total) {
  return std::min(Bytes(total.count() / 32), GiB(2));
}

CudaOpened CheckDriver(const Driver& driver, const CudaOptions& options) {
  int version = 0;
  if (driver.cuDriverGetVersion(&version) != CUDA_SUCCESS || version < kOldestDriver) {
    return Trouble(CudaTrouble::kDriverTooOld,
                   absl::StrCat(options.name, " needs a driver for CUDA ", FormatVersion(kOldestDriver),
                                ", found one for ", FormatVersion(version), "; update NVIDIA's driver"));
  }
  const CUresult result = driver.cuInit(0);
  if (result == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH || result == CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE) {
    return Trouble(CudaTrouble::kDriverTooOld,
                   absl::StrCat(driver.Describe(result), "; install one driver and load its kernel module"));
  }
  if (result == CUDA_ERROR_NO_DEVICE) {
    return Trouble(CudaTrouble::kNoDevice,
                   absl::StrCat(options.name,
                                " was asked for, and the driver sees no GPU: this machine has none, it is "
                                "cut into instances (MIG) without one for this process, or it fell off "
                                "the bus (nvidia-smi tells which)"));
  }
  if (IsOfMps(result)) {
    return Trouble(CudaTrouble::kTaken,
                   absl::StrCat("the MPS server between this process and the GPU refuses: ",
                                driver.Describe(result), "; stop it (echo quit | nvidia-cuda-mps-control)"));
  }
  if (result != CUDA_SUCCESS)
    return Trouble(CudaTrouble::kNoDriver, absl::StrCat("it does not start: ", driver.Describe(result)));
  return {};
}

CudaOpened CheckDevice(const Driver& driver, const CudaOptions& options, CUdevice& device) {
  int count = 0;
  (void)driver.cuDeviceGetCount(&count);
  if (options.ordinal >= count || driver.cuDeviceGet(&device, options.ordinal) != CUDA_SUCCESS) {
    return Trouble(CudaTrouble::kNoDevice,
                   absl::StrCat(options.name, " was asked for, this machine has ", count, " GPUs"));
  }
  int major = 0;
  int minor = 0;
  (void)driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  (void)driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  if (major < kOldestMajor) {
    return Trouble(CudaTrouble::kWrongArchitecture,
                   absl::StrCat(options.name, " is of sm_", major, minor, ", there is code for sm_",
                                kOldestMajor, "0 and later; use a newer GPU"));
  }
  int mode = CU_COMPUTEMODE_DEFAULT;
  (void)driver.cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device);
  if (mode == CU_COMPUTEMODE_PROHIBITED) {
    return Trouble(CudaTrouble::kTaken,
                   absl::StrCat(options.name,
                                " lets no process compute (compute mode prohibited); set "
                                "another one: nvidia-smi -c DEFAULT"));
  }
  char name[128] = {};
  (void)driver.cuDeviceGetName(name, sizeof(name), device);
  if (absl::StrContains(name, " MIG ")) {
    return Trouble(CudaTrouble::kTaken,
                   absl::StrCat(options.name, " is an instance of a GPU (", name,
                                "), and only whole GPUs are taken; nvidia-smi -mig 0 makes it whole"));
  }
  int shared = 0;
  (void)driver.cuDeviceGetAttribute(&shared, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device);
  if (shared != 0) {
    return Trouble(CudaTrouble::kTaken,
                   absl::StrCat("an MPS server stands between this process and ", options.name,
                                "; stop it (echo quit | nvidia-cuda-mps-control)"));
  }
  int maps = 0;
  (void)driver.cuDeviceGetAttribute(&maps, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
  if (maps == 0) {
    return Trouble(
        CudaTrouble::kWrongArchitecture,
        absl::StrCat(options.name,
                     " maps no memory to addresses that it is told (virtual memory management); a GPU "
                     "that is passed through whole does"));
  }
  return {};
}

// Why the driver made no context.
CudaOpened NoContext(const Driver& driver, const CudaOptions& options, CUresult result) {
  const std::string said = driver.Describe(result);
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return Trouble(
          CudaTrouble::kBusy,
          absl::StrCat(options.name, " has no memory left for a context: ", said, "; end what holds it"));
    case CUDA_ERROR_DEVICE_UNAVAILABLE:  // until that process ends
      return Trouble(CudaTrouble::kBusy,
                     absl::StrCat(options.name, " is another process's alone (compute mode exclusive): ",
                                  said, "; end that process, or nvidia-smi -c DEFAULT"));
    default:
      if (IsOfMps(result)) {
        return Trouble(CudaTrouble::kTaken,
                       absl::StrCat("the MPS server between this process and ", options.name,
                                    " refuses: ", said, "; stop it (echo quit | nvidia-cuda-mps-control)"));
      }
      return Trouble(CudaTrouble::kLost, absl::StrCat("making a context on ", options.name, ": ", said));
  }
}

// How much to take; the context's own share is gone already.
CudaOpened CheckMemory(const Context& context, const CudaOptions& options, Bytes& size) {
  std::size_t free = 0;
  std::size_t total = 0;
  const absl::Status asked =
      context.Check(context.driver().cuMemGetInfo(&free, &total), "asking for the GPU's memory");
  if (!asked.ok()) return Trouble(CudaTrouble::kLost, std::string(asked.message()));
  size = options.memory;
  if (size > Bytes(total)) {
    return Trouble(CudaTrouble::kUsage,
                   absl::StrCat(FormatBytes(size), " of ", options.name, " were asked for, which has ",
                                FormatBytes(Bytes(total)), "; ask for less"));
  }
  const Bytes reserve = ReserveOf(Bytes(total));
  const bool whole = size == Bytes(0);
  // Of a whole GPU half is the least that is worth serving from.
  if (Bytes(free) < (whole ? Bytes(total / 2) : size)) {
    return Trouble(CudaTrouble::kBusy,
                   absl::StrCat(options.name, " has ", FormatBytes(Bytes(free)), " free of ",
                                FormatBytes(Bytes(total)), ", ", whole ? "half" : FormatBytes(size),
                                " is needed; end that process or ask for less"));
  }
  if (whole) size = Bytes(free) - reserve;
  if (size < kSmallest) {
    return Trouble(CudaTrouble::kUsage, absl::StrCat(FormatBytes(size), " of ", options.name,
                                                     " were asked for, less than a unit of ",
                                                     FormatBytes(kSmallest), "; ask for more"));
  }
  return {};
}

CudaTrouble TroubleOf(const Context& context, const absl::Status& status) {
  if (!context.health().ok()) return CudaTrouble::kLost;
  return absl::IsResourceExhausted(status) ? CudaTrouble::kOutOfMemory : CudaTrouble::kLost;
}

}  // namespace

void TakeConnections() {
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

CudaOpened Open(const CudaOptions& options) {
  TakeConnections();
  const auto driver = Driver::Load(options.driver);
  if (!driver.ok()) {
    return Trouble(absl::IsNotFound(driver.status()) ? CudaTrouble::kNoDriver : CudaTrouble::kDriverTooOld,
                   std::string(driver.status().message()));
  }
  if (CudaOpened found = CheckDriver(**driver, options); found.trouble != CudaTrouble::kNone) return found;
  CUdevice device = 0;
  if (CudaOpened found = CheckDevice(**driver, options, device); found.trouble != CudaTrouble::kNone)
    return found;
  CUresult made = CUDA_SUCCESS;
  std::unique_ptr<Context> context = Context::Make(*driver, device, made);
  if (context == nullptr) return NoContext(**driver, options, made);
  context->Enter();
  auto shares = GreenContexts::Make(*context);  // before what is free is counted
  if (!context->health().ok()) return Trouble(CudaTrouble::kLost, std::string(context->health().message()));
  Bytes size;
  if (CudaOpened found = CheckMemory(*context, options, size); found.trouble != CudaTrouble::kNone)
    return found;
  absl::StatusOr<std::unique_ptr<Memory>> memory =
      Memory::Make(*context, size, options.addresses == WeightAddresses::kMapped);
  if (!memory.ok())
    return Trouble(TroubleOf(*context, memory.status()), std::string(memory.status().message()));
  CudaOpened opened;
  opened.device =
      MakeDevice(std::move(context), std::move(shares), *std::move(memory), options, opened.summary);
  return opened;
}

}  // namespace troupe::gpu::cuda
