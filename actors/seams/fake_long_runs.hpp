// FAKE LONG RUNS: runs of some models that take far longer than others, as a test or a schedule of faults
// wants them, and what the fake GPUs saw of them. Shared by the workers of a cluster.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace troupe::actors {

struct FakeLongRuns {
  // The longest piece of a run after which a worker looks whether the run has passed its limit.
  static constexpr Duration kGroup = std::chrono::milliseconds(50);
  struct Seen {
    std::string question{};  // the run's first input
    Time begin{}, end{};     // of its time on the GPU
    bool cut = false;
  };

  // By digest: how long the runs that begin now would take; zero: as long as all others. Runs of the models
  // that are named here are kept in `seen`.
  std::map<std::string, Duration> length{};
  std::vector<Seen> seen{};
  // A mistake on purpose: no run is cut, however long it takes.
  bool never_cuts = false;

  [[nodiscard]] bool Named(const std::string& digest) const { return length.contains(digest); }
  // How long a run that begins now has the GPU; zero: as long as all others. It is cut at the end of the
  // group in which it passes its limit by an eighth (gpu/device/launch_limit.hpp); `limit` zero: never.
  [[nodiscard]] Duration OnGpu(const std::string& digest, Duration limit) const {
    const auto it = length.find(digest);
    if (it == length.end() || it->second == Duration::zero()) return Duration::zero();
    if (limit <= Duration::zero() || never_cuts) return it->second;
    const Duration least = limit + limit / 8;
    return std::min(it->second, (least + kGroup - Duration(1)) / kGroup * kGroup);
  }
};

}  // namespace troupe::actors
