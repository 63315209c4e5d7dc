// The fake driver's kernels: the bodies of our own, run element by element on the host; and memory for a
// plan's constants.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpu/cuda/fake/fake_driver.hpp"
#include "gpu/cuda/kernels/bodies.hpp"
#include "gpu/cuda/kernels/index_bodies.hpp"
#include "gpu/cuda/kernels/list.hpp"
#include "gpu/cuda/kernels/quantized_bodies.hpp"
#include "gpu/cuda/kernels/row_bodies.hpp"
#include "gpu/cuda/kernels/window_bodies.hpp"

namespace troupe::gpu::cuda::fake {
namespace {

struct HostKernel {
  std::size_t arguments;
  // As so many threads do it, each of which takes every so many-th element (or warp: row).
  void (*run)(const void* arguments, std::int64_t threads);
};

template <class F>
void ForEachOf(std::int64_t count, std::int64_t workers, F&& f) {
  for (std::int64_t worker = 0; worker < std::min(workers, count); ++worker) {
    for (std::int64_t i = worker; i < count; i += workers) f(i);
  }
}

const std::map<std::string, HostKernel>& HostKernels() {
  static const std::map<std::string, HostKernel>& kernels = *new std::map<std::string, HostKernel>{
#define TROUPE_HOST_ELEMENTS(Name)                                                            \
  {"Troupe" #Name, {sizeof(Name##Arguments), [](const void* bytes, std::int64_t threads) {    \
                      const auto& a = *static_cast<const Name##Arguments*>(bytes);            \
                      ForEachOf(a.count, threads, [&a](std::int64_t i) { Run##Name(a, i); }); \
                    }}},
#define TROUPE_HOST_ROWS(Name)                                                                              \
  {"Troupe" #Name, {sizeof(Name##Arguments), [](const void* bytes, std::int64_t threads) {                  \
                      const auto& a = *static_cast<const Name##Arguments*>(bytes);                          \
                      ForEachOf(a.count, threads / 32, [&a](std::int64_t i) { Run##Name(a, i, Alone()); }); \
                    }}},
      TROUPE_CUDA_ELEMENT_KERNELS(TROUPE_HOST_ELEMENTS) TROUPE_CUDA_ROW_KERNELS(TROUPE_HOST_ROWS)};
  return kernels;
}

// As on a GPU nothing is in the first page. Only of the kernel that tests and faults send there.
bool ReadsNowhere(const HostKernel& kernel, const void* arguments) {
  return &kernel == &HostKernels().at("TroupeUnary") &&
         reinterpret_cast<std::uintptr_t>(static_cast<const UnaryArguments*>(arguments)->in) < 4096;
}

}  // namespace
}  // namespace troupe::gpu::cuda::fake

namespace fake = troupe::gpu::cuda::fake;

extern "C" {

// In blocks, of the kernels since the last call of this.
std::uint64_t FakeCudaLargestGrid() {
  fake::State& state = fake::TheState();
  const std::lock_guard lock(state.mutex);
  return std::exchange(state.largest_grid, 0);
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**, unsigned int,
                                   CUlibraryOption*, void**, unsigned int) {
  if (const CUresult free = fake::NotWhileCapturing(); free != CUDA_SUCCESS) return free;
  *library = reinterpret_cast<CUlibrary>(const_cast<void*>(image));
  return image == nullptr ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}
CUresult CUDAAPI cuLibraryUnload(CUlibrary) {
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
  const auto found = fake::HostKernels().find(name);
  if (found == fake::HostKernels().end()) return CUDA_ERROR_NOT_FOUND;
  *kernel = reinterpret_cast<CUkernel>(const_cast<fake::HostKernel*>(&found->second));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int blocks, unsigned int, unsigned int,
                                unsigned int threads, unsigned int, unsigned int, unsigned int,
                                CUstream stream, void** parameters, void**) {
  fake::CountCall();
  if (blocks == 0 || threads == 0 || threads % 32 != 0) return CUDA_ERROR_INVALID_VALUE;
  fake::Load(function, fake::QueueOf(stream).capturing());
  if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
  const auto& kernel = *reinterpret_cast<const fake::HostKernel*>(function);
  const auto* const bytes = static_cast<const char*>(parameters[0]);
  if (fake::ReadsNowhere(kernel, bytes)) {  // told by what comes after it
    fake::State& state = fake::TheState();
    const std::lock_guard lock(state.mutex);
    state.illegal = true;
    return CUDA_SUCCESS;
  }
  {
    fake::State& state = fake::TheState();
    const std::lock_guard lock(state.mutex);
    state.largest_grid = std::max<std::uint64_t>(state.largest_grid, blocks);
  }
  // The call reads the parameters: the caller may change them afterwards.
  fake::CountBurst(stream);
  fake::QueueOf(stream).Push(
      [&kernel, stream, workers = std::int64_t{blocks} * threads,
       copy = std::vector<char>(bytes, bytes + kernel.arguments)] {
        fake::CountLaunch(stream);
        kernel.run(copy.data(), workers);
      },
      &kernel);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemAlloc(CUdeviceptr* address, std::size_t size) {
  if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
  if (fake::Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult free = fake::Synchronise(); free != CUDA_SUCCESS) return free;
  fake::State& state = fake::TheState();
  const std::lock_guard lock(state.mutex);
  if (state.used + size + state.config.held > state.config.memory) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (size + 255) / 256 * 256));
  if (*address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  state.allocated[*address] = size;
  state.used += size;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
  if (const CUresult free = fake::Synchronise(); free != CUDA_SUCCESS) return free;
  fake::State& state = fake::TheState();
  const std::lock_guard lock(state.mutex);
  const auto found = state.allocated.find(address);
  if (found == state.allocated.end()) return CUDA_ERROR_INVALID_VALUE;
  state.used -= found->second;
  state.allocated.erase(found);
  std::free(reinterpret_cast<void*>(address));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t size) {
  if (const CUresult free = fake::Synchronise(); free != CUDA_SUCCESS) return free;
  std::memcpy(reinterpret_cast<void*>(to), from, size);
  return fake::Alive();
}

}  // extern "C"
