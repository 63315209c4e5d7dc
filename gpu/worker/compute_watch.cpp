#include "gpu/worker/compute_watch.hpp"

#include <cstddef>

namespace troupe::gpu {

ComputeWatch::LaneState ComputeWatch::Observe(std::span<const LaneState> lanes, Time now) {
  seen_.resize(lanes.size(), {{}, now});
  const Seen* shown = nullptr;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    Seen& seen = seen_[i];
    const LaneState& state = lanes[i];
    const bool stands =
        state.busy && state.order == seen.state.order && state.progress == seen.state.progress;
    if (!stands) seen.moved = now;
    seen.state = state;
    const bool staler = shown == nullptr || state.busy > shown->state.busy ||
                        (state.busy == shown->state.busy && seen.moved < shown->moved);
    if (staler) shown = &seen;
  }
  return shown == nullptr ? LaneState() : shown->state;
}

}  // namespace troupe::gpu
