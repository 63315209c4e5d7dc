#include "actors/gateway/slo_recorder.hpp"

namespace troupe::actors {

void SloRecorder::Observe(const cluster::EndedRequest& request, Time now) {
  const std::lock_guard lock(mutex_);
  tracker_.Ended(request, now);
}

proto::GatewayDescription SloRecorder::Describe(const proto::DescribeGateway& ask, Time now) const {
  const std::lock_guard lock(mutex_);
  return tracker_.Describe(ask, now);
}

proto::KeptSlos SloRecorder::Keep(Time now, std::int64_t unix_ns) const {
  const std::lock_guard lock(mutex_);
  return tracker_.Keep(now, unix_ns);
}

void SloRecorder::Restore(const proto::KeptSlos& kept, Time now, std::int64_t unix_ns) {
  const std::lock_guard lock(mutex_);
  tracker_.Restore(kept, now, unix_ns);
}

}  // namespace troupe::actors
