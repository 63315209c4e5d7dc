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

}  // namespace troupe::actors
