#include "scheduling/run_time_sketch.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr double kSmallestNanos = 1000;

std::size_t BucketOf(Duration took) {
  const double times = static_cast<double>(took.count()) / kSmallestNanos;
  if (!(times > 1)) return 0;
  const double bucket = std::ceil(2 * std::log2(times) - 1e-9);
  return static_cast<std::size_t>(std::clamp(bucket, 0.0, double{RunTimeSketch::kBuckets - 1}));
}

Duration UpperBound(std::size_t bucket) {
  return Duration(
      static_cast<Duration::rep>(std::llround(kSmallestNanos * std::exp2(static_cast<double>(bucket) / 2))));
}

}  // namespace

void RunTimeSketch::Observe(Duration took) {
  if (runs_ >= kMostRuns) Halve();
  ++counts_[BucketOf(took)];
  ++runs_;
}

void RunTimeSketch::Halve() {
  runs_ = 0;
  for (std::uint16_t& count : counts_) {
    count = static_cast<std::uint16_t>(count / 2);
    runs_ += count;
  }
}

Duration RunTimeSketch::Percentile(double percent) const {
  const double wanted = percent / 100 * runs_;
  std::uint32_t below = 0;
  for (std::size_t bucket = 0; bucket < kBuckets && runs_ > 0; ++bucket) {
    below += counts_[bucket];
    if (below > 0 && below >= wanted) return UpperBound(bucket);
  }
  return Duration::zero();
}

std::vector<std::uint32_t> RunTimeSketch::Counts() const {
  std::vector<std::uint32_t> counts(counts_.begin(), counts_.end());
  while (!counts.empty() && counts.back() == 0) counts.pop_back();
  return counts;
}

RunTimeSketch RunTimeSketch::Of(const std::vector<std::uint32_t>& counts) {
  RunTimeSketch sketch;
  for (std::size_t bucket = 0; bucket < std::min(counts.size(), kBuckets); ++bucket) {
    const std::uint32_t count = std::min(counts[bucket], kMostRuns - sketch.runs_);
    sketch.counts_[bucket] = static_cast<std::uint16_t>(count);
    sketch.runs_ += count;
  }
  return sketch;
}

}  // namespace troupe
