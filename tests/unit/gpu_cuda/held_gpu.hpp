// A GPU of the fake driver that has something to do until a test releases it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "gpu/cuda/context.hpp"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"

namespace troupe::gpu::test {

// One stream of its own waits for a word of memory, so that calls that wait for all streams wait for Release.
class HeldGpu {
 public:
  HeldGpu() {
    const auto driver = cuda::Driver::Load(DriverLibrary());
    TROUPE_CHECK(driver.ok(), "the fake driver is not built");
    CUresult made = CUDA_SUCCESS;
    context_ = cuda::Context::Make(*driver, 0, made);
    TROUPE_CHECK(context_ != nullptr, "the fake driver makes no context");
    context_->Enter();
    void* word = nullptr;
    TROUPE_CHECK(context_->driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
                     context_->driver().cuMemHostAlloc(&word, sizeof(*word_), CU_MEMHOSTALLOC_DEVICEMAP) ==
                         CUDA_SUCCESS,
                 "the fake driver gives no stream or no word");
    word_ = static_cast<std::uint32_t*>(word);
    TROUPE_CHECK(context_->driver().cuStreamWaitValue32(stream_, reinterpret_cast<CUdeviceptr>(word_), 1,
                                                        CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS,
                 "a stream of the fake driver waits for no word");
  }
  ~HeldGpu() {
    Release();
    context_->Enter();
    (void)context_->driver().cuStreamDestroy(stream_);
    (void)context_->driver().cuMemFreeHost(word_);
  }
  HeldGpu(const HeldGpu&) = delete;
  HeldGpu& operator=(const HeldGpu&) = delete;
  void Release() { std::atomic_ref(*word_).store(1); }

 private:
  std::unique_ptr<cuda::Context> context_;
  CUstream stream_ = nullptr;
  std::uint32_t* word_ = nullptr;
};

}  // namespace troupe::gpu::test
