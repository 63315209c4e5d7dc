// The gateway's SLO tracker for several actors: the router tells how requests ended, the front and the page of metrics ask.
// Thread-safe.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "cluster/slo/slo_tracker.hpp"

namespace troupe::actors {

class SloRecorder {
 public:
  explicit SloRecorder(std::string gateway) : tracker_(std::move(gateway)) {}

  void Observe(const cluster::EndedRequest& request, Time now);
  [[nodiscard]] proto::GatewayDescription Describe(const proto::DescribeGateway& ask, Time now) const;
  // As the tracker does.
  [[nodiscard]] proto::KeptSlos Keep(Time now, std::int64_t unix_ns) const;
  void Restore(const proto::KeptSlos& kept, Time now, std::int64_t unix_ns);

 private:
  mutable std::mutex mutex_;
  cluster::SloTracker tracker_;  // guarded by mutex_
};

}  // namespace troupe::actors
