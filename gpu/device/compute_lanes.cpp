#include "gpu/device/compute_lanes.hpp"

#include <omp.h>

#include "base/check.hpp"

namespace troupe::gpu {

ComputeLanes::ComputeLanes(std::size_t lanes, int threads) {
  TROUPE_CHECK(lanes > 0, "a GPU computes something at a time");
  for (std::size_t i = 0; i < lanes; ++i) {
    lanes_.push_back(std::make_unique<VirtualEngine>([threads] { omp_set_num_threads(threads); }));
  }
}

VirtualEngine& ComputeLanes::Assign() {
  const std::lock_guard lock(mutex_);
  return *lanes_[next_++ % lanes_.size()];
}

EngineState ComputeLanes::state() const {
  EngineState all;
  for (const auto& lane : lanes_) {
    const EngineState state = lane->state();
    all.busy |= state.busy;
    all.progress += state.progress;
  }
  all.busy_time = busy_time();
  return all;
}

void ComputeLanes::Freeze() {
  for (const auto& lane : lanes_) lane->Freeze(true);
}

}  // namespace troupe::gpu
