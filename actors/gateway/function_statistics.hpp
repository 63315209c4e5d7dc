// What each function and workflow did on this gateway since it started: counts and times, and Prometheus's
// view of them. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "gateway/inference_service.hpp"
#include "proto/request.pb.h"

namespace troupe::actors {

class FunctionStatistics {
 public:
  void Observe(const proto::InferReply& reply, Duration took, std::int64_t unix_ms);
  // A call of a workflow. Its steps are calls of their own, so it is not among the totals.
  void ObserveRun(const proto::FunctionKey& workflow, int code, Duration took, std::int64_t unix_ms);
  // Zeroes for a function that was not called yet.
  [[nodiscard]] gateway::FunctionStatistics Find(const std::string& name, const std::string& version) const;

  struct Totals {
    std::uint64_t served = 0, failed = 0, hits = 0, retried = 0;
    Duration swap{}, compute{};
    std::map<std::uint32_t, std::uint64_t> batches{};  // runs, by how many requests they answered
  };
  [[nodiscard]] Totals totals() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, gateway::FunctionStatistics> functions_;  // guarded by mutex_
  Totals totals_;                                                                         // guarded by mutex_
};

}  // namespace troupe::actors
