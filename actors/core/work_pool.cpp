#include "actors/core/work_pool.hpp"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

WorkPool::WorkPool(std::size_t threads, std::size_t limit) : limit_(limit) {
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

WorkPool::~WorkPool() {
  Stop();
}

void WorkPool::Stop() {
  std::deque<std::function<void()>> dropped;  // destroyed outside the lock: their ends may post again
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(jobs_);
  }
  wake_.notify_all();
  for (auto& thread : threads_)
    if (thread.joinable()) thread.join();
}

absl::Status WorkPool::Post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return absl::CancelledError("the daemon is stopping");
    if (jobs_.size() >= limit_)
      return absl::ResourceExhaustedError(absl::StrCat(limit_, " jobs wait for the disk"));
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
  return absl::OkStatus();
}

void WorkPool::Work() {
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace troupe::actors
