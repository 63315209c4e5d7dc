// From a name to a device, with a line for each thing that can be wrong on the way.
#include <algorithm>
#include <utility>

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
  return {trouble, absl::StrCat(Name(trouble), ": ", what), nullptr};
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
                   absl::StrCat(options.name, " was asked for, this machine has no GPU"));
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
  return {};
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

CudaOpened Open(const CudaOptions& options) {
  const auto driver = Driver::Load(options.driver);
  if (!driver.ok()) {
    return Trouble(absl::IsNotFound(driver.status()) ? CudaTrouble::kNoDriver : CudaTrouble::kDriverTooOld,
                   std::string(driver.status().message()));
  }
  if (CudaOpened found = CheckDriver(**driver, options); found.trouble != CudaTrouble::kNone) return found;
  CUdevice device = 0;
  if (CudaOpened found = CheckDevice(**driver, options, device); found.trouble != CudaTrouble::kNone)
    return found;
  absl::StatusOr<std::unique_ptr<Context>> context = Context::Make(*driver, device);
  if (!context.ok()) {
    return Trouble(
        absl::IsResourceExhausted(context.status()) ? CudaTrouble::kOutOfMemory : CudaTrouble::kLost,
        std::string(context.status().message()));
  }
  (*context)->Enter();
  auto shares = GreenContexts::Make(**context);  // before what is free is counted
  if (!(*context)->health().ok())
    return Trouble(CudaTrouble::kLost, std::string((*context)->health().message()));
  Bytes size;
  if (CudaOpened found = CheckMemory(**context, options, size); found.trouble != CudaTrouble::kNone)
    return found;
  absl::StatusOr<std::unique_ptr<Memory>> memory = Memory::Make(**context, size);
  if (!memory.ok())
    return Trouble(TroubleOf(**context, memory.status()), std::string(memory.status().message()));
  return {CudaTrouble::kNone, "",
          MakeDevice(*std::move(context), std::move(shares), *std::move(memory), options)};
}

}  // namespace troupe::gpu::cuda
