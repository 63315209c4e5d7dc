// WORKER REFUSALS: how many connections the sockets of each worker of a node have refused, as the workers say
// on their control pages. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "actors/daemon/gauges.hpp"

namespace troupe::actors {

class WorkerRefusals {
 public:
  // `count`: since that worker began; a new one begins at zero.
  void Set(std::uint32_t worker, std::uint64_t count) {
    const std::lock_guard lock(mutex_);
    counts_[worker] = count;
  }
  void Show(const Gauges::Labels& node, Gauges& gauges) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [worker, count] : counts_) {
      Gauges::Labels labels = node;
      labels["worker"] = std::to_string(worker);
      gauges.Set("troupe_worker_connections_refused_total",
                 "Connections that a GPU worker's sockets refused or closed.", labels,
                 static_cast<double>(count));
    }
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::uint64_t> counts_;  // guarded by mutex_
};

}  // namespace troupe::actors
