#include "gpu/cuda/probe.hpp"

#include <cublas_v2.h>
#include <cudnn.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gpu/cuda/device.hpp"
#include "gpu/cuda/probe_parts.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::cuda {
namespace {

using transport::SteadyNow;

constexpr Bytes kTaken = MiB(128);  // of the GPU, for what is measured

class Prober {
 public:
  explicit Prober(const CudaOptions& options) : options_(options) {}
  Probed Run();

 private:
  void Say(std::string part, std::string name, std::string value) {
    cuda::Say(probed_, std::move(part), std::move(name), std::move(value));
  }
  void Library(const std::string& file, std::string (*version)(void* library));
  void Libraries();
  bool Describe();
  void Measure(const CudaOptions& options);
  void Attributes(CUdevice device);

  const CudaOptions options_;
  Probed probed_;
  std::shared_ptr<const Driver> driver_;
  CUdevice device_ = 0;
};

// What `version` says of the library in that file: it tells its version without a GPU.
void Prober::Library(const std::string& file, std::string (*version)(void* library)) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const error = dlerror();
    return Say("libraries", file, absl::StrCat("missing: ", error == nullptr ? "no reason given" : error));
  }
  Say("libraries", file, version(library));
}

constexpr char kUntold[] = "there, of a version that it does not tell";

std::string BlasVersion(void* library) {
  auto* const property = reinterpret_cast<decltype(&cublasGetProperty)>(dlsym(library, "cublasGetProperty"));
  if (property == nullptr) return kUntold;
  std::array<int, 3> parts{};
  constexpr std::array kParts = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
  for (std::size_t i = 0; i < parts.size(); ++i) (void)property(kParts[i], &parts[i]);
  return absl::StrCat("version ", absl::StrJoin(parts, "."));
}

std::string DnnVersion(void* library) {
  auto* const number = reinterpret_cast<decltype(&cudnnGetVersion)>(dlsym(library, "cudnnGetVersion"));
  return number == nullptr ? kUntold : absl::StrCat("version ", number());
}

void Prober::Libraries() {
  Library(options_.blas, &BlasVersion);
  Library(options_.dnn, &DnnVersion);
  for (const auto& [file, without] : {std::pair(options_.blas_lt, "bias and Relu are kernels of their own"),
                                      std::pair(options_.nccl, "no broadcasts between GPUs")}) {
    const bool there = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr;
    Say("libraries", file, there ? "there" : absl::StrCat("missing: ", without));
  }
}

void Prober::Attributes(CUdevice device) {
#define TROUPE_ATTRIBUTE(name) std::pair(CU_DEVICE_ATTRIBUTE_##name, #name)
  for (const auto& [attribute, name] :
       {TROUPE_ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR), TROUPE_ATTRIBUTE(COMPUTE_CAPABILITY_MINOR),
        TROUPE_ATTRIBUTE(MULTIPROCESSOR_COUNT), TROUPE_ATTRIBUTE(ASYNC_ENGINE_COUNT),
        TROUPE_ATTRIBUTE(COMPUTE_MODE), TROUPE_ATTRIBUTE(MPS_ENABLED),
        TROUPE_ATTRIBUTE(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
        TROUPE_ATTRIBUTE(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
        TROUPE_ATTRIBUTE(READ_ONLY_HOST_REGISTER_SUPPORTED), TROUPE_ATTRIBUTE(HOST_REGISTER_SUPPORTED),
        TROUPE_ATTRIBUTE(CAN_USE_64_BIT_STREAM_MEM_OPS), TROUPE_ATTRIBUTE(CAN_USE_STREAM_WAIT_VALUE_NOR),
        TROUPE_ATTRIBUTE(PAGEABLE_MEMORY_ACCESS), TROUPE_ATTRIBUTE(ECC_ENABLED)}) {
    int value = 0;
    const CUresult asked = driver_->cuDeviceGetAttribute(&value, attribute, device);
    Say("attributes", name, asked == CUDA_SUCCESS ? absl::StrCat(value) : driver_->Describe(asked));
  }
#undef TROUPE_ATTRIBUTE
}

// What can be asked before anything is made on the GPU, so that a GPU that is refused is described.
bool Prober::Describe() {
  const auto driver = Driver::Load(options_.driver);
  if (!driver.ok()) {
    Say("driver", options_.driver, std::string(driver.status().message()));
    return false;
  }
  driver_ = *driver;
  int version = 0;
  (void)driver_->cuDriverGetVersion(&version);
  Say("driver", "is for CUDA", absl::StrCat(version / 1000, ".", version % 1000 / 10));
  Say("driver", "this program was built for CUDA",
      absl::StrCat(CUDA_VERSION / 1000, ".", CUDA_VERSION % 1000 / 10, ", GPUs of sm_80 and later"));
  const CUresult started = driver_->cuInit(0);
  if (started != CUDA_SUCCESS) {
    Say("driver", "does not start", driver_->Describe(started));
    return false;
  }
  int count = 0;
  (void)driver_->cuDeviceGetCount(&count);
  Say("driver", "GPUs", absl::StrCat(count));
  if (driver_->cuDeviceGet(&device_, options_.ordinal) != CUDA_SUCCESS) return false;
  std::array<char, 128> name{};
  (void)driver_->cuDeviceGetName(name.data(), static_cast<int>(name.size()), device_);
  Say("gpu", "name", name.data());
  std::size_t bytes = 0;
  (void)driver_->cuDeviceTotalMem(&bytes, device_);
  Say("gpu", "memory", FormatBytes(Bytes(bytes)));
  Attributes(device_);
  return true;
}

// A worker's start, with what each part of it takes of the memory; and then what it works with.
void Prober::Measure(const CudaOptions& options) {
  CUresult made = CUDA_SUCCESS;
  const auto context = Context::Make(driver_, device_, made);
  if (context == nullptr) return Say("device", "a context", driver_->Describe(made));
  MemoryLeft left(*context);
  Say("memory", "a context, and what others hold", FormatBytes(left.gone()));
  CudaOpened opened = Open(options);
  if (opened.device == nullptr) return Say("device", "opened anew", opened.why);
  const Bytes taken = left.Taken();
  Say("memory", "a worker's start, beside its models",
      FormatBytes(taken - std::min(taken, opened.device->info().memory)));
  ProbeUnits(*context, probed_);
  ProbeHostMemory(*context, probed_);
  ProbeAddresses(*context, probed_);
  ProbePlace(*context, probed_);
  const auto stream = opened.device->MakeStream();
  ProbeCopies(*opened.device, *stream, probed_);
  ProbeSteps(*opened.device, *stream, left, probed_);
  if (const absl::Status health = opened.device->Health(); !health.ok()) {
    probed_.trouble = CudaTrouble::kLost;
    probed_.why = absl::StrCat(Name(CudaTrouble::kLost), ": ", std::string(health.message()));
  }
}

Probed Prober::Run() {
  TakeConnections();
  const bool described = Describe();
  Libraries();
  CudaOptions options = options_;
  if (options.memory == Bytes(0)) options.memory = kTaken;
  const Time begin = SteadyNow();
  CudaOpened opened = Open(options);
  probed_.trouble = opened.trouble;
  probed_.why = opened.why;
  if (opened.device == nullptr || !described) return std::move(probed_);
  Say("device", "opened in", Milliseconds(SteadyNow() - begin));
  probed_.uses.push_back(absl::StrCat("A worker with ", FormatBytes(options.memory),
                                      " of it says at its start: ", opened.summary, "."));
  opened.device.reset();
  Measure(options);
  return std::move(probed_);
}

}  // namespace

Probed ProbeDevice(const CudaOptions& options) {
  return Prober(options).Run();
}

}  // namespace troupe::gpu::cuda
