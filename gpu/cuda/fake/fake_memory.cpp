// The fake driver's memory: each allocation a file in memory, mapped where it was asked for.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "gpu/cuda/fake/fake_driver.hpp"

using troupe::gpu::cuda::fake::Alive;
using troupe::gpu::cuda::fake::State;
using troupe::gpu::cuda::fake::Synchronise;
using troupe::gpu::cuda::fake::TheState;

namespace troupe::gpu::cuda::fake {

namespace {

std::size_t Unit() {
  return TheState().config.unit;
}

void* Address(CUdeviceptr pointer) {
  return reinterpret_cast<void*>(pointer);
}

constexpr const char* kFileName = "fake-cuda";

// Those of this process that are not a handle's own. Under the state's mutex.
std::uint64_t OpenDescriptors(const State& state) {
  std::uint64_t open = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone)
            .string()
            .starts_with(std::string("/memfd:") + kFileName))
      ++open;
  }
  return open - state.handles.size();
}
void CountDescriptors(State& state) {
  FakeDescriptorCounts& counts = state.descriptors;
  if (state.exported > counts.imported)  // else they came from another process
    counts.on_the_way = std::max(counts.on_the_way, state.exported - counts.imported);
  if (state.config.descriptors != 0) counts.open = std::max(counts.open, OpenDescriptors(state));
}

}  // namespace
}  // namespace troupe::gpu::cuda::fake

using troupe::gpu::cuda::fake::Address;
using troupe::gpu::cuda::fake::CountDescriptors;
using troupe::gpu::cuda::fake::FakeDescriptorCounts;
using troupe::gpu::cuda::fake::FakeMemoryCounts;
using troupe::gpu::cuda::fake::kFileName;
using troupe::gpu::cuda::fake::Unit;

extern "C" {

void FakeCudaMemoryCounts(FakeMemoryCounts* counts) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  *counts = state.memory_calls;
}
void FakeCudaDescriptors(FakeDescriptorCounts* counts) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  *counts = state.descriptors;
}

CUresult CUDAAPI cuMemGetInfo(std::size_t* free, std::size_t* total) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  *total = state.config.memory;
  const std::uint64_t gone = state.config.held + state.used;
  *free = gone < state.config.memory ? state.config.memory - gone : 0;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemGetAllocationGranularity(std::size_t* granularity, const CUmemAllocationProp*,
                                               CUmemAllocationGranularity_flags) {
  *granularity = Unit();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t size,
                             const CUmemAllocationProp*, unsigned long long) {
  if (const CUresult alive = Alive(); alive != CUDA_SUCCESS) return alive;
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (size % Unit() != 0) return CUDA_ERROR_INVALID_VALUE;
  ++state.created;
  const bool refused = state.config.refuse > 0 && state.created >= state.config.refuse;
  if (refused || state.used + size + state.config.held > state.config.memory) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = memfd_create(kFileName, MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = state.next_handle++;
  state.handles[*handle] = {file, size};
  state.used += size;
  ++state.memory_calls.created;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const auto found = state.handles.find(handle);
  if (found == state.handles.end()) return CUDA_ERROR_INVALID_VALUE;
  close(found->second.first);
  state.used -= found->second.second;
  state.handles.erase(found);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* pointer, std::size_t size, std::size_t, CUdeviceptr address,
                                     unsigned long long) {
  // As the driver takes it: a wish.
  const bool moves = TheState().config.moves_addresses != 0;
  const std::size_t room = size + Unit();
  void* reserved = mmap(moves ? nullptr : Address(address), address != 0 ? size : room, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  if (address == 0) {  // aligned; what is beside it is given back
    const auto begin = reinterpret_cast<std::uintptr_t>(reserved);
    const std::uintptr_t aligned = (begin + Unit() - 1) / Unit() * Unit();
    if (aligned > begin) munmap(reserved, aligned - begin);
    if (begin + room > aligned + size) munmap(Address(aligned + size), begin + room - aligned - size);
    reserved = Address(aligned);
  }
  *pointer = reinterpret_cast<CUdeviceptr>(reserved);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemAddressFree(CUdeviceptr pointer, std::size_t size) {
  return munmap(Address(pointer), size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult CUDAAPI cuMemMap(CUdeviceptr pointer, std::size_t size, std::size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long) {
  if (const CUresult alive = Alive(); alive != CUDA_SUCCESS) return alive;
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const auto found = state.handles.find(handle);
  if (found == state.handles.end() || offset != 0 || size != found->second.second || pointer % Unit() != 0)
    return CUDA_ERROR_INVALID_VALUE;
  ++state.memory_calls.mapped;
  // No access before cuMemSetAccess.
  void* const mapped =
      mmap(Address(pointer), size, PROT_NONE, MAP_SHARED | MAP_FIXED, found->second.first, 0);
  return mapped == MAP_FAILED ? CUDA_ERROR_MAP_FAILED : CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemUnmap(CUdeviceptr pointer, std::size_t size) {
  if (const CUresult alive = Alive(); alive != CUDA_SUCCESS) return alive;
  if (const CUresult free = Synchronise(); free != CUDA_SUCCESS) return free;
  {
    State& state = TheState();
    const std::lock_guard lock(state.mutex);
    ++state.memory_calls.unmapped;
  }
  void* const left =
      mmap(Address(pointer), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return left == MAP_FAILED ? CUDA_ERROR_UNMAP_FAILED : CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemSetAccess(CUdeviceptr pointer, std::size_t size, const CUmemAccessDesc*, std::size_t) {
  if (const CUresult alive = Alive(); alive != CUDA_SUCCESS) return alive;
  if (const CUresult free = Synchronise(); free != CUDA_SUCCESS) return free;
  return mprotect(Address(pointer), size, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_VALUE;
}
CUresult CUDAAPI cuMemExportToShareableHandle(void* shared, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType, unsigned long long) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const auto found = state.handles.find(handle);
  if (found == state.handles.end()) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int*>(shared) = fcntl(found->second.first, F_DUPFD_CLOEXEC, 0);
  if (*static_cast<int*>(shared) < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  ++state.exported;
  CountDescriptors(state);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shared,
                                                CUmemAllocationHandleType) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const int file = fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(shared)), F_DUPFD_CLOEXEC, 0);
  struct stat about {};
  if (file < 0 || fstat(file, &about) != 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = state.next_handle++;
  // Counted twice, here and where it was made: room is what tests bound, not this.
  state.used += static_cast<std::uint64_t>(about.st_size);
  state.handles[*handle] = {file, static_cast<std::uint64_t>(about.st_size)};
  ++state.descriptors.imported;
  CountDescriptors(state);
  return CUDA_SUCCESS;
}

}  // extern "C"
