#include "node/profiling/steady_throughput.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace troupe::node {

void SteadyThroughput::Ended(Duration latency, Duration run, Time now) {
  if (ended_++ == 0) {
    open_.begin = now;
    return;
  }
  ++open_.runs;
  open_.computed += run;
  if (open_.latencies.size() < kMostSamples) open_.latencies.push_back(latency);
  if (open_.runs < rule_.runs || now - open_.begin < rule_.window) return;
  open_.end = now;
  windows_.push_back(std::exchange(open_, Window{.begin = now}));
  if (windows_.size() > rule_.windows) windows_.pop_front();
  if (++closed_ < rule_.patience || steady()) return;
  closed_ = 0;
  rule_.window *= 2;
  rule_.runs *= 2;
}

bool SteadyThroughput::steady() const {
  if (closed_ < rule_.windows) return false;
  double mean = 0;
  for (const auto& window : windows_) mean += window.Rate() / static_cast<double>(windows_.size());
  return std::ranges::all_of(windows_, [&](const auto& window) {
    return std::abs(window.Rate() - mean) <= rule_.most_apart * mean;
  });
}

SteadyThroughput::Figures SteadyThroughput::Measure() const {
  Figures figures;
  std::vector<Duration> latencies;
  Duration computed{};
  for (const auto& window : windows_) {
    figures.runs += window.runs;
    computed += window.computed;
    latencies.insert(latencies.end(), window.latencies.begin(), window.latencies.end());
  }
  if (figures.runs == 0) return figures;
  figures.run = computed / static_cast<Duration::rep>(figures.runs);
  figures.runs_per_second =
      static_cast<double>(figures.runs) / ToSeconds(windows_.back().end - windows_.front().begin);
  std::ranges::sort(latencies);
  // The smallest that so many percent of the runs do not exceed.
  const auto percentile = [&](std::size_t percent) {
    return latencies[(latencies.size() * percent + 99) / 100 - 1];
  };
  figures.p50 = percentile(50);
  figures.p90 = percentile(90);
  figures.p99 = percentile(99);
  return figures;
}

std::string SteadyThroughput::Describe() const {
  if (windows_.empty()) return absl::StrFormat("%d runs ended, too few for one window", ended_);
  const auto rates = absl::StrJoin(windows_, ", ", [](std::string* out, const Window& window) {
    absl::StrAppendFormat(out, "%.1f", window.Rate());
  });
  return absl::StrFormat("its last windows had %s runs/s", rates);
}

}  // namespace troupe::node
