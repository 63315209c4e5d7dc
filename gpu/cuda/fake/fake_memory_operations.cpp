// The fake driver's operations on words of memory: a stream waits until a word has a value, by
// a write of another stream or of the host.
#include <atomic>
#include <chrono>
#include <thread>

#include "gpu/cuda/fake/fake_driver.hpp"

namespace troupe::gpu::cuda::fake {
namespace {

constexpr auto kLook = std::chrono::microseconds(20);

std::atomic<std::uint64_t>& Waiting() {
  static std::atomic<std::uint64_t>& waiting = *new std::atomic<std::uint64_t>(0);
  return waiting;
}

std::atomic_ref<std::uint32_t> WordAt(CUdeviceptr address) {
  return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(address));
}

// Words are in memory that the driver has made or was told of. Operations that are captured would be nodes of their
// own, which the product never does.
CUresult Usable(CUstream stream, CUdeviceptr address) {
  CountCall();
  if (const CUresult alive = Alive(); alive != CUDA_SUCCESS) return alive;
  {
    State& state = TheState();
    const std::lock_guard lock(state.mutex);
    if (state.config.no_words != 0 ||
        (state.config.no_green_words != 0 && state.green_streams.contains(stream)))
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (QueueOf(stream).capturing()) {
    QueueOf(stream).SpoilCapture();
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  const HostMemory host = HostMemoryAt(reinterpret_cast<const void*>(address), sizeof(std::uint32_t));
  const bool usable = host.kind == HostMemory::Kind::kRegistered && !host.read_only;
  return usable && address % sizeof(std::uint32_t) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace troupe::gpu::cuda::fake

namespace fake = troupe::gpu::cuda::fake;

extern "C" {

// Until the word is at least the value, in a comparison that wraps around. What a lost GPU waits for does not matter
// any more.
CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                     unsigned int flags) {
  const CUresult usable = fake::Usable(stream, address);
  if (usable != CUDA_SUCCESS) return usable;
  if (flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_NOT_SUPPORTED;
  ++fake::Waiting();
  fake::QueueOf(stream).Push([address, value] {
    while (static_cast<std::int32_t>(fake::WordAt(address).load() - value) < 0 &&
           fake::Alive() == CUDA_SUCCESS)
      std::this_thread::sleep_for(fake::kLook);
    --fake::Waiting();
  });
  return CUDA_SUCCESS;
}
// Behind all that the stream did before. The version of this call has no flag for less.
CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                      unsigned int flags) {
  const CUresult usable = fake::Usable(stream, address);
  if (usable != CUDA_SUCCESS) return usable;
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  fake::QueueOf(stream).Push([address, value, held = fake::TheState().config.held_writes != 0] {
    while (held && fake::Waiting() > 0 && fake::Alive() == CUDA_SUCCESS)
      std::this_thread::sleep_for(fake::kLook);
    fake::WordAt(address).store(value);
  });
  return CUDA_SUCCESS;
}

}  // extern "C"
