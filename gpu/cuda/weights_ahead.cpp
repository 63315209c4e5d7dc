#include "gpu/cuda/weights_ahead.hpp"

#include <algorithm>
#include <utility>

namespace troupe::gpu::cuda {
namespace {

// How often a watchdog is shown that the launch waits for its weights.
constexpr Duration kWeightsSlice = std::chrono::milliseconds(50);

}  // namespace

std::optional<std::vector<WeightsAhead::Word>> WeightsAhead::Add(const EventPtr& event) {
  const SignalRange range = event->signals();
  const auto signals = std::dynamic_pointer_cast<const CudaSignals>(range.of);
  if (signals == nullptr || event->done()) return std::nullopt;
  std::vector<Word> words;
  std::size_t& added = added_[signals];
  if (range.count <= added) return words;
  for (std::size_t index = std::exchange(added, range.count); index < range.count; ++index) {
    if (!signals->Raised(index)) words.push_back({signals, index});
  }
  events_.push_back(event);
  return words;
}

absl::Status WeightsAhead::Await(std::size_t count, const Context& context,
                                 const std::function<void()>& alive) {
  absl::Status status;
  for (; told_ < count; ++told_) {
    const Event& event = *events_[told_];
    while (!event.done()) {
      if (absl::Status health = context.health(); !health.ok()) return health;
      if (alive) alive();
      (void)event.Wait(kWeightsSlice);
    }
    if (status.ok()) status = event.status();
  }
  return status;
}

EventPtr WeightsAhead::AfterStep() {
  if (events_.empty() || ++steps_ < kMostSteps) return nullptr;
  steps_ = 0;
  return events_.back();
}

}  // namespace troupe::gpu::cuda
