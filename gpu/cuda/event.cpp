#include "gpu/cuda/event.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::gpu::cuda {

bool CudaEvent::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

absl::Status CudaEvent::status() const {
  const std::lock_guard lock(mutex_);
  TROUPE_CHECK(done_, "the status of a pending event was asked for");
  return status_;
}

absl::Status CudaEvent::Wait(Duration timeout) const {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [this] { return done_; })) {
    return absl::DeadlineExceededError(
        absl::StrCat("an event is still pending after ", FormatDuration(timeout)));
  }
  return status_;
}

void CudaEvent::Submitted(EventHandle end) {
  {
    const std::lock_guard lock(mutex_);
    end_ = std::move(end);
  }
  changed_.notify_all();
}

void CudaEvent::Complete(absl::Status status) {
  {
    const std::lock_guard lock(mutex_);
    TROUPE_CHECK(!done_, "an event completes once");
    done_ = true;
    status_ = std::move(status);
    end_ = nullptr;
  }
  changed_.notify_all();
}

bool CudaEvent::submitted() const {
  const std::lock_guard lock(mutex_);
  return done_ || end_ != nullptr;
}

CudaEvent::Ahead CudaEvent::WaitSubmitted() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_ || end_ != nullptr; });
  return {status_, end_};
}

void CudaEvent::WaitDone() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
}

}  // namespace troupe::gpu::cuda
