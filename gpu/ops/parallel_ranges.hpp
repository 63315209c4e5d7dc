// Splits a loop over the threads that a plan was made for (OpenMP, like the oneDNN primitives beside it).
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace troupe::gpu {

// Below this many elements per thread, waking a thread costs more than it brings.
inline constexpr std::int64_t kElementsPerThread = 32768;

// Whether a thread that waits stays awake for a while, which this process was told when it began (GOMP_SPINCOUNT, as
// gpu/worker/worker_process sets it). A thread that is awake begins its part within a few microseconds, and a thread that
// sleeps begins it after 40.
[[nodiscard]] bool ThreadsWaitAwake();

// Runs f(first, last) over [0, count), in as many pieces as `count` items of `cost` elements each are worth.
template <class F>
void ParallelRanges(std::int64_t count, std::int64_t cost, F&& f) {
  if (count <= 0) return;
  const std::int64_t worth = count * std::max<std::int64_t>(cost, 1) / kElementsPerThread;
  const std::int64_t pieces =
      omp_in_parallel() != 0 ? 1 : std::clamp<std::int64_t>(std::min(worth, count), 1, omp_get_max_threads());
  if (pieces == 1) return f(std::int64_t{0}, count);
#pragma omp parallel for num_threads(static_cast <int>(pieces)) schedule(static)
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    f(count * piece / pieces, count * (piece + 1) / pieces);
  }
}

}  // namespace troupe::gpu
