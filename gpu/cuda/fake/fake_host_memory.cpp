// The fake driver's view of the host's memory: what is registered, and the pages that a copy takes from there.
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "gpu/cuda/fake/fake_driver.hpp"

namespace troupe::gpu::cuda::fake {
namespace {

constexpr std::size_t kPage = 4096;
// As much as one pipe holds by reference.
constexpr std::size_t kHeld = 1 << 20;

// A registration takes as long as a test says.
void AwaitNoHold(std::size_t size) {
  const std::uint64_t held = TheState().config.held_register;
  const char* const file = std::getenv("TROUPE_FAKE_CUDA_HOLD");
  while (held > 0 && size >= held && file != nullptr && access(file, F_OK) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// A test of another process hears of what was registered: the sizes, in a file.
void Tell(std::size_t size) {
  const char* const file = std::getenv("TROUPE_FAKE_CUDA_REGISTERED");
  if (file != nullptr) std::ofstream(file, std::ios::app) << size << std::endl;
}

// Whether all of it is mapped for writing.
bool Writable(const void* begin, std::size_t size) {
  std::ifstream maps("/proc/self/maps");
  auto wanted = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t behind = wanted + size;
  for (std::string line; wanted < behind && std::getline(maps, line);) {
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, access) != 3 || to <= wanted) continue;
    if (from > wanted || access[1] != 'w') return false;
    wanted = to;
  }
  return wanted >= behind;
}

}  // namespace

// A pipe keeps the pages themselves that it was given by reference, whatever is mapped at their place later.
std::shared_ptr<const PinnedPages> PinnedPages::Hold(const void* begin, std::size_t size) {
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(begin) / kPage * kPage;
  const std::uintptr_t behind = (reinterpret_cast<std::uintptr_t>(begin) + size + kPage - 1) / kPage * kPage;
  std::shared_ptr<PinnedPages> held(new PinnedPages(first));
  for (std::uintptr_t at = first; at < behind; at += kHeld) {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return nullptr;
    held->pipes_.emplace_back(ends[0], ends[1]);
    const iovec pages{reinterpret_cast<void*>(at), std::min<std::size_t>(kHeld, behind - at)};
    if (fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(kHeld)) < 0 ||
        vmsplice(ends[1], &pages, 1, 0) != static_cast<ssize_t>(pages.iov_len))
      return nullptr;
  }
  return held;
}

PinnedPages::~PinnedPages() {
  for (const auto& [out, in] : pipes_) {
    close(out);
    close(in);
  }
}

void PinnedPages::Read(std::uintptr_t address, std::size_t size, char* to) const {
  std::vector<char> held(kHeld);
  while (size > 0) {
    const std::size_t offset = (address - begin_) % kHeld;
    const std::size_t part = std::min(size, kHeld - offset);
    int ends[2] = {-1, -1};
    ssize_t read_in = -1;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
      if (fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(kHeld)) >= 0 &&
          tee(pipes_[(address - begin_) / kHeld].first, ends[1], kHeld, 0) > 0)
        read_in = read(ends[0], held.data(), kHeld);
      close(ends[0]);
      close(ends[1]);
    }
    if (read_in < static_cast<ssize_t>(offset + part)) {
      std::fprintf(stderr, "the fake driver lost the pages that it holds\n");
      std::abort();
    }
    std::memcpy(to, held.data() + offset, part);
    address += part;
    to += part;
    size -= part;
  }
}

HostMemory HostMemoryAt(const void* begin, std::size_t size) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  auto at = state.registered.upper_bound(address);
  const bool reaches = at != state.registered.end() && at->first < address + size;
  if (at != state.registered.begin()) {
    --at;
    const std::uintptr_t end = at->first + at->second.size;
    if (address + size <= end) return {HostMemory::Kind::kRegistered, at->second.read_only, at->second.pages};
    if (address < end) return {HostMemory::Kind::kAcross};
  }
  return {reaches ? HostMemory::Kind::kAcross : HostMemory::Kind::kPageable};
}

}  // namespace troupe::gpu::cuda::fake

namespace fake = troupe::gpu::cuda::fake;
using fake::State;
using fake::TheState;

extern "C" {

// Memory that is mapped for reading alone is refused, unless the device can read such memory and is told so.
CUresult CUDAAPI cuMemHostRegister(void* address, std::size_t size, unsigned int flags) {
  if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
  if (fake::Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  State& state = TheState();
  fake::AwaitNoHold(size);
  const std::lock_guard lock(state.mutex);
  const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  if (read_only && state.config.read_only_register == 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (size == 0 || state.config.no_register != 0 || (!read_only && !fake::Writable(address, size)))
    return CUDA_ERROR_INVALID_VALUE;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const auto next = state.registered.lower_bound(begin);
  const bool apart =
      (next == state.registered.end() || begin + size <= next->first) &&
      (next == state.registered.begin() || std::prev(next)->first + std::prev(next)->second.size <= begin);
  if (!apart) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  State::Pinned pinned{size, read_only};
  if (state.config.pins != 0) {
    pinned.pages = fake::PinnedPages::Hold(address, size);
    if (pinned.pages == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  state.registered_bytes += size;
  fake::Tell(size);
  ++state.memory_calls.registered;
  state.registered.emplace(begin, std::move(pinned));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemHostUnregister(void* address) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const auto found = state.registered.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == state.registered.end()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  state.registered_bytes -= found->second.size;
  ++state.memory_calls.unregistered;
  state.registered.erase(found);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemHostAlloc(void** address, std::size_t size, unsigned int) {
  if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
  if (fake::Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult free = fake::Synchronise(); free != CUDA_SUCCESS) return free;
  const std::size_t rounded = (std::max<std::size_t>(size, 1) + 255) / 256 * 256;
  *address = std::aligned_alloc(256, rounded);
  if (*address == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(*address, 0, rounded);
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  // Of the driver itself, so that no page of it is ever exchanged.
  state.registered.emplace(reinterpret_cast<std::uintptr_t>(*address), State::Pinned{size, false});
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemFreeHost(void* address) {
  if (const CUresult free = fake::Synchronise(); free != CUDA_SUCCESS) return free;
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (state.registered.erase(reinterpret_cast<std::uintptr_t>(address)) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::free(address);
  return CUDA_SUCCESS;
}

// Of what the program has registered; without what the driver allocated.
std::uint64_t FakeCudaRegisteredBytes() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.registered_bytes;
}

}  // extern "C"
