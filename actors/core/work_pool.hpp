// WORK POOL: threads for what blocks (disk, imports, transfers), so that actors never do. Bounded; jobs begin
// in their order of arrival. The destructor finishes what was begun and drops the rest.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace troupe::actors {

class WorkPool {
 public:
  explicit WorkPool(std::size_t threads, std::size_t limit = 4096);
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // RESOURCE_EXHAUSTED when `limit` jobs wait already.
  // CANCELLED after Stop.
  absl::Status Post(std::function<void()> job);
  // What the destructor does, for an owner that is not the only one. Not on a thread of the pool.
  void Stop();

 private:
  void Work();

  const std::size_t limit_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_
  bool stopping_ = false;                   // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace troupe::actors
