#include "gpu/device/virtual_event.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::gpu {

bool VirtualEvent::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

absl::Status VirtualEvent::status() const {
  const std::lock_guard lock(mutex_);
  TROUPE_CHECK(done_, "the status of a pending event was asked for");
  return status_;
}

absl::Status VirtualEvent::Wait(Duration timeout) const {
  std::unique_lock lock(mutex_);
  if (!completed_.wait_for(lock, timeout, [this] { return done_; })) {
    return absl::DeadlineExceededError(
        absl::StrCat("an event is still pending after ", FormatDuration(timeout)));
  }
  return status_;
}

void VirtualEvent::Complete(absl::Status status) {
  std::vector<std::function<void()>> continuations;
  {
    const std::lock_guard lock(mutex_);
    TROUPE_CHECK(!done_, "an event completes once");
    done_ = true;
    status_ = std::move(status);
    continuations.swap(continuations_);
  }
  completed_.notify_all();
  for (auto& continuation : continuations) continuation();
}

void VirtualEvent::Then(std::function<void()> continuation) {
  {
    const std::lock_guard lock(mutex_);
    if (!done_) {
      continuations_.push_back(std::move(continuation));
      return;
    }
  }
  continuation();
}

}  // namespace troupe::gpu
