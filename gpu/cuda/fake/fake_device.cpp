// The fake driver's versions, devices and contexts.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

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
                                                       {"held_register", &config.held_register},
                                                       {"compute_mode", &config.compute_mode},
                                                       {"no_context", &config.no_context},
                                                       {"mps", &config.mps},
                                                       {"mig", &config.mig},
                                                       {"cublas", &config.cublas},
                                                       {"cublas_lt", &config.cublas_lt},
                                                       {"cudnn", &config.cudnn},
                                                       {"no_mapping", &config.no_mapping},
                                                       {"context_bytes", &config.context_bytes},
                                                       {"green_bytes", &config.green_bytes},
                                                       {"no_words", &config.no_words},
                                                       {"no_green_words", &config.no_green_words},
                                                       {"held_writes", &config.held_writes},
                                                       {"descriptors", &config.descriptors},
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

// Of all threads.
struct Counts {
  std::atomic<std::uint64_t> calls{0}, waits{0}, synchronising{0}, synchronising_launches{0},
      cold_launches{0}, timed_events{0}, staged{0}, events{0}, copies{0}, bursts{0};
};
Counts& TheCounts() {
  static Counts& counts = *new Counts;
  return counts;
}

thread_local CUcontext current_here = nullptr;
thread_local CUevent asked_here = nullptr;
thread_local std::uint64_t synchronising_here = 0;
thread_local bool launches_here = false;

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

CUcontext Current() {
  return current_here;
}

void CountCall(CUevent asked, bool waits) {
  Counts& counts = TheCounts();
  const bool again = asked != nullptr && asked == asked_here;
  asked_here = asked;
  if (!again) ++counts.calls;
  if (!again && waits) ++counts.waits;
}

void CountEvent(bool timed) {
  ++TheCounts().events;
  if (timed) ++TheCounts().timed_events;
}

void CountStaged() {
  ++TheCounts().staged;
}

void CountSynchronising() {
  ++TheCounts().synchronising;
  ++synchronising_here;
  if (launches_here) ++TheCounts().synchronising_launches;
}

void Load(const void* kernel, bool captured) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (state.loaded.insert(kernel).second && !captured) ++TheCounts().cold_launches;
}

void CountBurst(CUstream stream) {
  if (!QueueOf(stream).capturing() && !std::exchange(launches_here, true))
    TheCounts().synchronising_launches += synchronising_here;
  if (QueueOf(stream).Computes(TheCounts().copies)) ++TheCounts().bursts;
}

void CountCopy() {
  ++TheCounts().copies;
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
  state.copies = state.created = state.exported = state.connections = 0;
  state.descriptors = {};
  state.illegal = false;
  state.launches.clear();
  state.loaded.clear();
}

void FakeCudaCallCounts(troupe::gpu::cuda::fake::FakeCallCounts* counts) {
  const auto& all = troupe::gpu::cuda::fake::TheCounts();
  *counts = {.calls = all.calls,
             .waits = all.waits,
             .synchronising = all.synchronising,
             .synchronising_here = troupe::gpu::cuda::fake::synchronising_here,
             .synchronising_launches = all.synchronising_launches,
             .cold_launches = all.cold_launches,
             .timed_events = all.timed_events,
             .staged = all.staged,
             .events = all.events,
             .bursts = all.bursts};
}
// As CUDA_DEVICE_MAX_CONNECTIONS said when the driver was started: how many streams do not wait for each other.
std::uint64_t FakeCudaConnections() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.connections;
}
// Of all GPUs' memory, by whatever call.
std::uint64_t FakeCudaUsedBytes() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.used;
}

CUresult CUDAAPI cuInit(unsigned int) {
  const auto& config = TheState().config;
  const char* const connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  {
    const std::lock_guard lock(TheState().mutex);
    if (TheState().connections == 0)  // a driver is started once
      TheState().connections = connections == nullptr ? 8 : std::strtoull(connections, nullptr, 10);
  }
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
  std::snprintf(name, static_cast<std::size_t>(length),
                TheState().config.mig != 0 ? "fake MIG 1g.10gb" : "fake");
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
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      *value = static_cast<int>(TheState().config.compute_mode);
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
      *value = TheState().config.mps == 0 ? 0 : 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      *value = TheState().config.no_mapping == 0 ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      *value = 3;
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
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (state.config.no_context != 0) return static_cast<CUresult>(state.config.no_context);
  if (state.contexts++ == 0) {
    state.used += state.context_bytes = state.config.context_bytes;
    ++state.memory_calls.contexts;
  }
  *context = reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (--state.contexts == 0) state.used -= state.context_bytes;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  troupe::gpu::cuda::fake::CountCall();
  troupe::gpu::cuda::fake::current_here = context;
  return CUDA_SUCCESS;
}

}  // extern "C"
