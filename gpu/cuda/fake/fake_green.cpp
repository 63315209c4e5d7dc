// The fake driver's SMs: split once, in eights, joined into green contexts; and on which of them each kernel
// was put.
#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "gpu/cuda/fake/fake_driver.hpp"

namespace troupe::gpu::cuda::fake {
namespace {

constexpr std::uint32_t kStep = 8;

// What a resource is, where the driver keeps what is its own.
struct Origin {
  std::uint64_t split = 0;  // 0: the device's
  std::uint32_t first = 0;  // SM
};
Origin OriginOf(const CUdevResource& resource) {
  Origin origin;
  std::memcpy(&origin, resource._internal_padding, sizeof(origin));
  return origin;
}
CUdevResource Make(std::uint32_t sms, Origin origin) {
  CUdevResource resource{};
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  resource.sm.smCount = sms;
  resource.sm.minSmPartitionSize = kStep;
  resource.sm.smCoscheduledAlignment = kStep;
  std::memcpy(resource._internal_padding, &origin, sizeof(origin));
  return resource;
}

struct Description {
  std::set<std::uint32_t> sms;
};
struct GreenContext {
  std::set<std::uint32_t> sms;
  std::uint64_t bytes = 0;
};

}  // namespace
}  // namespace troupe::gpu::cuda::fake

namespace fake = troupe::gpu::cuda::fake;

extern "C" {

CUresult CUDAAPI cuDeviceGetDevResource(CUdevice, CUdevResource* resource, CUdevResourceType type) {
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const auto& config = fake::TheState().config;
  if (config.green == 0) return CUDA_ERROR_NOT_SUPPORTED;
  *resource = fake::Make(static_cast<std::uint32_t>(config.sms), {});
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* groups,
                                             const CUdevResource* input, CUdevResource* remaining,
                                             unsigned int flags, unsigned int least) {
  if (flags != 0 || input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_VALUE;
  if (fake::OriginOf(*input).split != 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (least > input->sm.smCount) return CUDA_ERROR_INVALID_VALUE;
  const std::uint32_t size = std::max(1U, (least + fake::kStep - 1) / fake::kStep) * fake::kStep;
  const std::uint32_t most = input->sm.smCount / size;
  if (result == nullptr) {
    *groups = most;
    return CUDA_SUCCESS;
  }
  fake::State& state = fake::TheState();
  const std::lock_guard lock(state.mutex);
  const std::uint64_t split = ++state.splits;
  *groups = std::min<unsigned int>(*groups, most);
  for (unsigned int i = 0; i < *groups; ++i) result[i] = fake::Make(size, {split, i * size});
  if (remaining != nullptr)
    *remaining = fake::Make(input->sm.smCount - *groups * size, {split, *groups * size});
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevResourceGenerateDesc(CUdevResourceDesc* made, CUdevResource* resources,
                                           unsigned int count) {
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  auto* const description = new fake::Description;
  for (unsigned int i = 0; i < count; ++i) {
    const fake::Origin origin = fake::OriginOf(resources[i]);
    bool good = count == 1 || (origin.split != 0 && origin.split == fake::OriginOf(resources[0]).split);
    for (std::uint32_t sm = 0; sm < resources[i].sm.smCount; ++sm)
      good &= description->sms.insert(origin.first + sm).second;
    if (good) continue;
    delete description;
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  *made = reinterpret_cast<CUdevResourceDesc>(description);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx* made, CUdevResourceDesc description, CUdevice,
                                  unsigned int flags) {
  if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
  if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  fake::State& state = fake::TheState();
  const std::lock_guard lock(state.mutex);
  // The driver keeps descriptors; nothing tells it that one is not needed any more.
  const std::unique_ptr<const fake::Description> joined(
      reinterpret_cast<const fake::Description*>(description));
  if (state.green_contexts >= state.config.green) return CUDA_ERROR_OUT_OF_MEMORY;
  if (state.used + state.config.green_bytes + state.config.held > state.config.memory)
    return CUDA_ERROR_OUT_OF_MEMORY;
  ++state.green_contexts;
  state.used += state.config.green_bytes;
  *made = reinterpret_cast<CUgreenCtx>(new fake::GreenContext{joined->sms, state.config.green_bytes});
  return CUDA_SUCCESS;
}
// The same, as calls take it that know no green contexts.
CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  *context = reinterpret_cast<CUcontext>(green);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx context) {
  fake::State& state = fake::TheState();
  const std::lock_guard lock(state.mutex);
  --state.green_contexts;
  state.used -= reinterpret_cast<fake::GreenContext*>(context)->bytes;
  delete reinterpret_cast<fake::GreenContext*>(context);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx context, unsigned int flags, int) {
  if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = reinterpret_cast<CUstream>(new fake::Queue(reinterpret_cast<CUcontext>(context)));
  fake::State& state = fake::TheState();
  const std::lock_guard lock(state.mutex);
  state.green_streams[*stream] = reinterpret_cast<fake::GreenContext*>(context)->sms;
  return CUDA_SUCCESS;
}

// How many kernels were put on exactly the SMs from `first` on, `count` of them (all of the GPU's: outside of
// any green context).
std::uint64_t FakeCudaLaunches(std::uint32_t first, std::uint32_t count) {
  fake::State& state = fake::TheState();
  const std::lock_guard lock(state.mutex);
  return state.launches[{first, count}];
}
std::uint64_t FakeCudaGreenContexts() {
  fake::State& state = fake::TheState();
  const std::lock_guard lock(state.mutex);
  return state.green_contexts;
}
// On how many SMs a stream's kernels run.
std::uint32_t FakeCudaSmsOf(CUstream stream) {
  fake::State& state = fake::TheState();
  const std::lock_guard lock(state.mutex);
  const auto found = state.green_streams.find(stream);
  return static_cast<std::uint32_t>(found == state.green_streams.end() ? state.config.sms
                                                                       : found->second.size());
}

}  // extern "C"

namespace troupe::gpu::cuda::fake {

void CountLaunch(CUstream stream) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const auto found = state.green_streams.find(stream);
  if (found == state.green_streams.end())
    ++state.launches[{0, static_cast<std::uint32_t>(state.config.sms)}];
  else
    ++state.launches[{*found->second.begin(), static_cast<std::uint32_t>(found->second.size())}];
}

}  // namespace troupe::gpu::cuda::fake
