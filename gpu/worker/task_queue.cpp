#include "gpu/worker/task_queue.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace troupe::gpu {

absl::StatusOr<std::unique_ptr<TaskQueue>> TaskQueue::Create() {
  transport::UniqueFd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell.valid()) return transport::ErrnoStatus(errno, "eventfd for the main loop");
  return std::unique_ptr<TaskQueue>(new TaskQueue(std::move(bell)));
}

void TaskQueue::Post(Task task) {
  bool ring = false;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    any_ = true;
    ring = std::exchange(sleeping_, false);
  }
  const std::uint64_t one = 1;
  if (ring) (void)!write(bell_.get(), &one, sizeof(one));
}

bool TaskQueue::Run() {
  if (!any_) return false;
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
    any_ = false;
  }
  for (Task& task : tasks) task();
  return !tasks.empty();
}

bool TaskQueue::Arm() {
  const std::lock_guard lock(mutex_);
  sleeping_ = tasks_.empty();
  return sleeping_;
}

void TaskQueue::Disarm() {
  const std::lock_guard lock(mutex_);
  sleeping_ = false;
  std::uint64_t rings = 0;
  (void)!read(bell_.get(), &rings, sizeof(rings));
}

TaskThread::TaskThread() {
  thread_ = std::thread([this] { Serve(); });
}

TaskThread::~TaskThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void TaskThread::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void TaskThread::Serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it owns goes before the lock is taken
    lock.lock();
  }
}

}  // namespace troupe::gpu
