#include "actors/gateway/function_statistics.hpp"

namespace troupe::actors {

namespace {

void Add(gateway::CountedTime& counted, Duration time) {
  ++counted.count;
  counted.total += time;
}

}  // namespace

void FunctionStatistics::Observe(const proto::InferReply& reply, Duration took, std::int64_t unix_ms) {
  const std::lock_guard lock(mutex_);
  const auto& times = reply.times();
  totals_.retried += reply.attempts() > 1;
  if (reply.code() == static_cast<int>(absl::StatusCode::kNotFound))
    return;  // no such function: no series for it
  auto& function = functions_[{reply.function().name(), reply.function().version()}];
  if (reply.code() != 0) {
    ++totals_.failed;
    return Add(function.fail, took);
  }
  ++totals_.served;
  totals_.hits += reply.hit();
  totals_.swap += Duration(times.swap_ns());
  totals_.compute += Duration(times.compute_ns());
  function.last_inference_unix_ms = unix_ms;
  ++function.inference_count;
  ++function.execution_count;
  Add(function.success, took);
  Add(function.queue, Duration(times.router_queue_ns() + times.node_queue_ns()));
  Add(function.compute_input, Duration(times.swap_ns() + times.copy_ns() / 2));
  Add(function.compute_infer, Duration(times.compute_ns()));
  Add(function.compute_output, Duration(times.copy_ns() / 2));
}

void FunctionStatistics::ObserveRun(const proto::FunctionKey& workflow, int code, Duration took,
                                    std::int64_t unix_ms) {
  const std::lock_guard lock(mutex_);
  auto& run = functions_[{workflow.name(), workflow.version()}];
  if (code != 0) return Add(run.fail, took);
  run.last_inference_unix_ms = unix_ms;
  ++run.inference_count;
  ++run.execution_count;
  Add(run.success, took);
}

gateway::FunctionStatistics FunctionStatistics::Find(const std::string& name,
                                                     const std::string& version) const {
  const std::lock_guard lock(mutex_);
  const auto it = functions_.find({name, version});
  return it == functions_.end() ? gateway::FunctionStatistics() : it->second;
}

FunctionStatistics::Totals FunctionStatistics::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

}  // namespace troupe::actors
