#include "actors/node/worker_life.hpp"

#include <utility>

namespace troupe::actors {

void WorkerLife::Starting() {
  ++incarnation_;
  // A worker that starts for another reason than an assignment serves no particular key.
  if (!std::exchange(assigned_, false)) serves_.clear();
}

void WorkerLife::Adopting() {
  if (incarnation_ == 0) ++incarnation_;
}

void WorkerLife::Assign(const std::string& key, bool fresh, Time now) {
  serves_ = key;
  assigned_ = fresh;
  down_since_ = now;
  if (!fresh) ++incarnation_;
}

proto::ExecutorReport WorkerLife::Report(proto::ExecutorReport::State state, const std::string& why,
                                         std::uint64_t restarts, Time now) {
  proto::ExecutorReport report;
  report.set_gpu(gpu_);
  report.set_state(state);
  report.set_reason(why);
  report.set_restarts(restarts);
  report.set_incarnation(incarnation_);
  if (state == proto::ExecutorReport::STARTING) report.mutable_worker()->set_isolation_key(serves_);
  if (state == proto::ExecutorReport::READY) {
    *report.mutable_worker() = worker_;
    if (down_since_ != Time{}) report.set_down_ns((now - down_since_).count());
    down_since_ = Time{};
  }
  if (state == proto::ExecutorReport::DOWN) down_since_ = now;
  return report;
}

}  // namespace troupe::actors
