// The event of the virtual GPU: streams hang what waits for it onto it, so that no thread has to.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "gpu/device/event.hpp"

namespace troupe::gpu {

class VirtualEvent final : public Event {
 public:
  [[nodiscard]] bool done() const override;
  [[nodiscard]] absl::Status status() const override;
  [[nodiscard]] absl::Status Wait(Duration timeout) const override;

  // Once. Calls what hangs on it, on this thread.
  void Complete(absl::Status status);
  // Calls `continuation` when the event is done: now, on this thread, if it is.
  void Then(std::function<void()> continuation);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable completed_;
  bool done_ = false;  // guarded by mutex_, as all below
  absl::Status status_;
  std::vector<std::function<void()>> continuations_;
};

}  // namespace troupe::gpu
