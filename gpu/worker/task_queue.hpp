// How other threads hand work to the main loop, and how the main loop hands slow work to a thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/memory_file.hpp"

namespace troupe::gpu {

// Tasks for the main loop's thread. Post from any thread; the rest from the loop's. In an event loop, as with
// a ring: Run until it says false, Arm, wait for fd() to become readable, Disarm.
class TaskQueue {
 public:
  using Task = std::function<void()>;
  static absl::StatusOr<std::unique_ptr<TaskQueue>> Create();
  void Post(Task task);
  // Runs what is there; false when there was nothing.
  bool Run();
  // False when a task came in between.
  bool Arm();
  void Disarm();
  [[nodiscard]] int fd() const { return bell_.get(); }

 private:
  explicit TaskQueue(transport::UniqueFd bell) : bell_(std::move(bell)) {}
  transport::UniqueFd bell_;
  std::mutex mutex_;
  std::vector<Task> tasks_;  // guarded by mutex_
  bool sleeping_ = false;    // guarded by mutex_
  std::atomic<bool> any_ = false;
};

// One thread that executes tasks in order. Its callers bound it. The destructor finishes the task at hand and
// drops the others.
class TaskThread {
 public:
  TaskThread();
  ~TaskThread();
  void Post(std::function<void()> task);

 private:
  void Serve();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  bool stopping_ = false;                    // guarded by mutex_
  std::thread thread_;
};

}  // namespace troupe::gpu
