#include "gpu/device/cuda_plugin.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "gpu/device/cuda_plugin_version.hpp"

namespace troupe::gpu {
namespace {

constexpr char kPluginFile[] = "libtroupe_gpu_cuda.so";

CudaOpened Trouble(CudaTrouble trouble, std::string why) {
  return {.trouble = trouble, .why = std::move(why)};
}

std::string LastError() {
  const char* error = dlerror();
  return error == nullptr ? "no reason given" : error;
}

}  // namespace

const char* Name(CudaTrouble trouble) {
  switch (trouble) {
    case CudaTrouble::kNone:
      return "none";
    case CudaTrouble::kUsage:
      return "usage";
    case CudaTrouble::kNoPlugin:
      return "no CUDA plug-in";
    case CudaTrouble::kNoDriver:
      return "no driver";
    case CudaTrouble::kDriverTooOld:
      return "driver too old";
    case CudaTrouble::kNoDevice:
      return "no device";
    case CudaTrouble::kWrongArchitecture:
      return "wrong architecture";
    case CudaTrouble::kOutOfMemory:
      return "out of memory at start";
    case CudaTrouble::kBusy:
      return "another process holds the memory";
    case CudaTrouble::kTaken:
      return "kept off the GPU";
    case CudaTrouble::kLost:
      return "device lost";
  }
  return "unknown";
}

std::string CudaPluginPath() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? kPluginFile : (program.parent_path() / kPluginFile).string();
}

CudaOpened OpenCuda(const std::string& plugin, const CudaOptions& options) {
  if (dlopen(options.driver.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    return Trouble(CudaTrouble::kNoDriver,
                   absl::StrCat("no driver: ", options.name, " was asked for, and ", options.driver,
                                " cannot be opened (", LastError(), "); install NVIDIA's driver"));
  }
  void* const library = dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Trouble(CudaTrouble::kNoPlugin, absl::StrCat("no CUDA plug-in: ", LastError(),
                                                        "; build with a CUDA toolkit for ", options.name));
  }
  auto* const version = reinterpret_cast<CudaVersionFunction*>(dlsym(library, kCudaVersionSymbol));
  auto* const open = reinterpret_cast<CudaOpenFunction*>(dlsym(library, kCudaOpenSymbol));
  if (version == nullptr || open == nullptr || std::string_view(version()) != kCudaPluginVersion) {
    return Trouble(CudaTrouble::kNoPlugin,
                   absl::StrCat("no CUDA plug-in: ", plugin, " is of another build (",
                                version == nullptr ? "no version" : version(), ", this is ",
                                kCudaPluginVersion, "); build and install both together"));
  }
  CudaOpened opened;
  open(options, opened);
  return opened;
}

}  // namespace troupe::gpu
