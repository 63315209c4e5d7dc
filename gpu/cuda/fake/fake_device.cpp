// The fake driver's versions, devices and contexts.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "gpu/cuda/fake/fake_driver.hpp"

namespace troupe::gpu::cuda::fake {
namespace {

Config Parse(const char* text) {
  Config config;
  const std::map<std::string, std::uint64_t*> names = {{"version", &config.version},
                                                       {"init", &config.init},
                                                       {"devices", &config.devices},
                                                       {"major", &config.major},
                                                       {"memory", &config.memory},
                                                       {"held", &config.held},
                                                       {"refuse", &config.refuse},
                                                       {"lost_after", &config.lost_after},
                                                       {"sms", &config.sms},
                                                       {"green", &config.green},
                                                       {"no_capture", &config.no_capture},
                                                       {"moves_addresses", &config.moves_addresses},
                                                       {"unit", &config.unit},
                                                       {"read_only_register", &config.read_only_register},
                                                       {"no_register", &config.no_register},
                                                       {"pins", &config.pins}};
  std::istringstream in(text == nullptr ? "" : text);
  for (std::string item; std::getline(in, item, ',');) {
    const auto found = names.find(item.substr(0, item.find('=')));
    if (found == names.end()) {
      std::fprintf(stderr, "the fake driver knows no '%s'\n", item.c_str());
      std::abort();
    }
    *found->second = std::strtoull(item.c_str() + item.find('=') + 1, nullptr, 10);
  }
  return config;
}

}  // namespace

State& TheState() {
  static State& state = *new State(Parse(std::getenv("TROUPE_FAKE_CUDA")));
  return state;
}

CUresult Alive() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const std::uint64_t after = state.config.lost_after;
  return state.illegal || (after > 0 && state.copies >= after) ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

void CountCopy() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  ++state.copies;
}

}  // namespace troupe::gpu::cuda::fake

using troupe::gpu::cuda::fake::State;
using troupe::gpu::cuda::fake::TheState;

extern "C" {

// Other conditions from now on, for the next device that is opened.
void FakeCudaConfigure(const char* text) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.config = troupe::gpu::cuda::fake::Parse(text);
  state.copies = state.created = 0;
  state.illegal = false;
  state.launches.clear();
}

CUresult CUDAAPI cuInit(unsigned int) {
  const auto& config = TheState().config;
  if (config.init != 0) return static_cast<CUresult>(config.init);
  return config.devices == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}
CUresult CUDAAPI cuDriverGetVersion(int* version) {
  *version = static_cast<int>(TheState().config.version);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGetErrorName(CUresult error, const char** name) {
  switch (error) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      return CUDA_SUCCESS;
    case CUDA_ERROR_NOT_SUPPORTED:
      *name = "CUDA_ERROR_NOT_SUPPORTED";
      return CUDA_SUCCESS;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      *name = "CUDA_ERROR_ILLEGAL_ADDRESS";
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
CUresult CUDAAPI cuGetErrorString(CUresult, const char** text) {
  *text = "of the fake driver";
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetCount(int* count) {
  *count = static_cast<int>(TheState().config.devices);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal < 0 || static_cast<std::uint64_t>(ordinal) >= TheState().config.devices)
    return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice) {
  std::snprintf(name, static_cast<std::size_t>(length), "fake");
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = static_cast<int>(TheState().config.major);
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
      *value = static_cast<int>(TheState().config.read_only_register);
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = static_cast<int>(TheState().config.sms);
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return CUDA_SUCCESS;
  }
}
CUresult CUDAAPI cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  *bytes = TheState().config.memory;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) {
  *can = 1;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice) {
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxSetCurrent(CUcontext) {
  return CUDA_SUCCESS;
}

}  // extern "C"
