#include "gateway/copy_thread.hpp"

#include <utility>

namespace troupe::gateway {

void CopyThread::Do(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void CopyThread::Stop() {
  std::deque<Job> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(jobs_);
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void CopyThread::Run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopped_ || !jobs_.empty(); });
      if (stopped_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace troupe::gateway
