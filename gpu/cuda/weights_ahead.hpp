// WEIGHTS AHEAD: the weights that a launch waits for on the GPU itself, while the host has put steps on its stream
// that need them.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "gpu/cuda/context.hpp"
#include "gpu/cuda/signal_words.hpp"
#include "gpu/device/event.hpp"

namespace troupe::gpu::cuda {

// Of one launch. Holds the signals that it waits for until the launch has been told of.
class WeightsAhead {
 public:
  // A call that puts work on a stream blocks when very much is on it, and might hold up the copies that the GPU waits
  // for. So after so many steps the weights of all of them have to be there.
  static constexpr std::size_t kMostSteps = 256;

  struct Word {
    std::shared_ptr<const CudaSignals> of;
    std::size_t index = 0;
  };
  // The launch needs what `event` stands for: the words that its stream has to wait for now. None of those that it
  // waited for before, or that are raised. Nothing: the GPU cannot wait for this event.
  [[nodiscard]] std::optional<std::vector<Word>> Add(const EventPtr& event);
  // How many events there are so far.
  [[nodiscard]] std::size_t size() const { return events_.size(); }
  // Waits until the host has been told of the first `count` events. The error of one that failed. `alive` is called
  // now and then.
  absl::Status Await(std::size_t count, const Context& context, const std::function<void()>& alive);
  // A step was put on the stream. What has to be done before the next one is; null: nothing.
  [[nodiscard]] EventPtr AfterStep();

 private:
  std::map<std::shared_ptr<const CudaSignals>, std::size_t> added_;  // how many of each
  std::vector<EventPtr> events_;
  std::size_t told_ = 0;   // events that Await has waited for
  std::size_t steps_ = 0;  // since the weights of all were there
};

}  // namespace troupe::gpu::cuda
