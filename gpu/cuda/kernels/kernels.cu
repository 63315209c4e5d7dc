// Our own kernels: which thread does which element, and how a warp agrees on a row. What is done is in
// the *bodies.hpp.
#include "gpu/cuda/kernels/bodies.hpp"
#include "gpu/cuda/kernels/index_bodies.hpp"
#include "gpu/cuda/kernels/list.hpp"
#include "gpu/cuda/kernels/quantized_bodies.hpp"
#include "gpu/cuda/kernels/row_bodies.hpp"
#include "gpu/cuda/kernels/window_bodies.hpp"

namespace troupe::gpu::cuda {

constexpr unsigned kWholeWarp = 0xffffffffU;

// The 32 lanes of a warp, all of which run every line of a row's body.
struct Warp {
  __device__ int lane() const { return static_cast<int>(threadIdx.x % 32); }
  __device__ int lanes() const { return 32; }
  __device__ float Sum(float x) const {
    for (int apart = 16; apart > 0; apart /= 2) x += __shfl_xor_sync(kWholeWarp, x, apart);
    return x;
  }
  __device__ float Product(float x) const {
    for (int apart = 16; apart > 0; apart /= 2) x *= __shfl_xor_sync(kWholeWarp, x, apart);
    return x;
  }
  // NaN wins over any number.
  __device__ float Largest(float x) const {
    for (int apart = 16; apart > 0; apart /= 2) {
      const float other = __shfl_xor_sync(kWholeWarp, x, apart);
      x = x > other || x != x ? x : other;
    }
    return x;
  }
  __device__ Candidate First(Order order, Candidate x) const {
    for (int apart = 16; apart > 0; apart /= 2) {
      const Candidate other{__shfl_xor_sync(kWholeWarp, x.value, apart),
                            __shfl_xor_sync(kWholeWarp, x.index, apart)};
      if (Before(order, other, x)) x = other;
    }
    return x;
  }
};

}  // namespace troupe::gpu::cuda

using namespace troupe::gpu::cuda;

#define TROUPE_ELEMENT_KERNEL(Name)                                                                \
  extern "C" __global__ void Troupe##Name(const Name##Arguments a) {                               \
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;                         \
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.count; \
         i += step)                                                                                \
      Run##Name(a, i);                                                                             \
  }
TROUPE_CUDA_ELEMENT_KERNELS(TROUPE_ELEMENT_KERNEL)

// Blocks are whole warps, so that no lane of a warp is missing.
#define TROUPE_ROW_KERNEL(Name)                                                                     \
  extern "C" __global__ void Troupe##Name(const Name##Arguments a) {                                \
    const long long warps = static_cast<long long>(gridDim.x) * (blockDim.x / 32);                  \
    for (long long row = static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32; \
         row < a.count; row += warps)                                                               \
      Run##Name(a, row, Warp());                                                                    \
  }
TROUPE_CUDA_ROW_KERNELS(TROUPE_ROW_KERNEL)
