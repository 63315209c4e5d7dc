#include "gpu/cuda/link_rate.hpp"

#include <algorithm>
#include <vector>

#include "base/status.hpp"

namespace troupe::gpu::cuda {
namespace {

constexpr Bytes kCopy = MiB(16);
constexpr int kFewest = 3;
constexpr int kMost = 24;
constexpr double kGain = 1.01;  // less is none

absl::StatusOr<double> SecondsOf(Context& context, CUstream stream, const void* from, DeviceRange to) {
  const Driver& driver = context.driver();
  TROUPE_ASSIGN_OR_RETURN(const EventHandle begin, context.MakeEvent(EventKind::kTimed));
  TROUPE_ASSIGN_OR_RETURN(const EventHandle end, context.MakeEvent(EventKind::kTimed));
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

BytesPerSecond MeasureLink(Context& context, DeviceRange scratch, bool pinned) {
  const Driver& driver = context.driver();
  context.Enter();
  const DeviceRange to{scratch.address, std::min(scratch.size, kCopy)};
  std::vector<std::byte> pageable(pinned ? 0 : to.size.count());
  void* from = pageable.data();
  CUstream stream = nullptr;
  if (pinned && driver.cuMemHostAlloc(&from, to.size.count(), 0) != CUDA_SUCCESS) return {};
  double best = 0;
  if (driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
    int without_gain = 0;
    for (int round = 0; round < kMost && (round < kFewest || without_gain < 2); ++round) {
      const absl::StatusOr<double> seconds = SecondsOf(context, stream, from, to);
      const double rate = seconds.ok() && *seconds > 0 ? static_cast<double>(to.size.count()) / *seconds : 0;
      without_gain = rate > kGain * best ? 0 : without_gain + 1;
      best = std::max(best, rate);
    }
    (void)driver.cuStreamDestroy(stream);
  }
  if (pinned) (void)driver.cuMemFreeHost(from);
  return {best};
}

}  // namespace troupe::gpu::cuda
