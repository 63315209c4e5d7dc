// The run times of one model, as counts in buckets: for a percentile of the latest of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.hpp"

namespace troupe {

// Buckets grow by the square root of two from 1 us, so a percentile is told at most that factor too large;
// the last one holds all above 36 minutes. When 1,024 runs are counted all counts are halved: older runs
// fade. 128 bytes, however many runs there were.
class RunTimeSketch {
 public:
  static constexpr std::size_t kBuckets = 64;
  static constexpr std::uint32_t kMostRuns = 1024;

  void Observe(Duration took);
  // How many runs it counts: all that were observed, less the runs that have faded.
  [[nodiscard]] std::uint32_t runs() const { return runs_; }
  // The upper bound of the bucket in which `percent` of the runs (above 0, up to 100) are counted, those of
  // all shorter buckets among them; zero when there are none.
  [[nodiscard]] Duration Percentile(double percent) const;

  // The counts without the empty buckets at the end, and back. What a file says beyond the bounds above is
  // cut to them.
  [[nodiscard]] std::vector<std::uint32_t> Counts() const;
  [[nodiscard]] static RunTimeSketch Of(const std::vector<std::uint32_t>& counts);

 private:
  void Halve();
  std::array<std::uint16_t, kBuckets> counts_{};
  std::uint32_t runs_ = 0;
};

}  // namespace troupe
