#include "actors/gateway/function_statistics.hpp"

#include <algorithm>

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
  Add(function.success, took);
  Add(function.queue, Duration(times.router_queue_ns() + times.node_queue_ns()));
  const Duration input(times.swap_ns() + times.copy_ns() / 2), output(times.copy_ns() / 2);
  Add(function.compute_input, input);
  Add(function.compute_infer, Duration(times.compute_ns()));
  Add(function.compute_output, output);
  // A run that answered several requests is counted with the first of them. A node of an earlier release does
  // not say how many they were: it joins none.
  const std::uint32_t size = std::max(1u, reply.story().batch_size());
  if (size > 1 && !reply.story().leads_batch()) return;
  ++function.execution_count;
  ++totals_.batches[size];
  auto& batch = function.batches[size];
  Add(batch.compute_input, input);
  Add(batch.compute_infer, Duration(times.compute_ns()));
  Add(batch.compute_output, output);
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
