#include "gpu/cuda/link_rate.hpp"

#include <algorithm>

#include "base/status.hpp"

namespace troupe::gpu::cuda {
namespace {

constexpr Bytes kCopy = MiB(16);
constexpr int kRounds = 3;

absl::StatusOr<double> SecondsOf(Context& context, CUstream stream, const void* from, DeviceRange to) {
  const Driver& driver = context.driver();
  TROUPE_ASSIGN_OR_RETURN(const EventHandle begin, context.MakeEvent());
  TROUPE_ASSIGN_OR_RETURN(const EventHandle end, context.MakeEvent());
  float milliseconds = 0;
  TROUPE_RETURN_IF_ERROR(context.Check(driver.cuEventRecord(begin.get(), stream), "measuring the link"));
  TROUPE_RETURN_IF_ERROR(context.Check(
      driver.cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(to.address), from, to.size.count(), stream),
      "measuring the link"));
  TROUPE_RETURN_IF_ERROR(context.Check(driver.cuEventRecord(end.get(), stream), "measuring the link"));
  TROUPE_RETURN_IF_ERROR(context.CheckWork(driver.cuEventSynchronize(end.get()), "measuring the link"));
  TROUPE_RETURN_IF_ERROR(
      context.Check(driver.cuEventElapsedTime(&milliseconds, begin.get(), end.get()), "measuring the link"));
  return static_cast<double>(milliseconds) / 1e3;
}

}  // namespace

BytesPerSecond MeasureLink(Context& context, DeviceRange scratch) {
  const Driver& driver = context.driver();
  context.Enter();
  const DeviceRange to{scratch.address, std::min(scratch.size, kCopy)};
  void* from = nullptr;
  CUstream stream = nullptr;
  if (driver.cuMemHostAlloc(&from, to.size.count(), 0) != CUDA_SUCCESS) return {};
  double best = 0;
  if (driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
    for (int round = 0; round < kRounds; ++round) {
      const absl::StatusOr<double> seconds = SecondsOf(context, stream, from, to);
      if (seconds.ok() && *seconds > 0)
        best = std::max(best, static_cast<double>(to.size.count()) / *seconds);
    }
    (void)driver.cuStreamDestroy(stream);
  }
  (void)driver.cuMemFreeHost(from);
  return {best};
}

}  // namespace troupe::gpu::cuda
