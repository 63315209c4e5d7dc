#include "actors/gateway/slo_recorder.hpp"

namespace troupe::actors {

void SloRecorder::Observe(const proto::InferReply& reply, const AnsweredCall& call, std::int64_t unix_ns) {
  const cluster::EndedRequest ended{.reply = reply,
                                    .took = call.took,
                                    .deadline = call.deadline,
                                    .percentile = call.percentile,
                                    .alpha = call.alpha,
                                    .id = call.id,
                                    .unix_ns = unix_ns};
  const std::lock_guard lock(mutex_);
  tracker_.Ended(ended, call.now);
}

proto::GatewayDescription SloRecorder::Describe(const proto::DescribeGateway& ask, Time now) const {
  const std::lock_guard lock(mutex_);
  return tracker_.Describe(ask, now);
}

}  // namespace troupe::actors
