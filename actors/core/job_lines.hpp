// JOB LINES: jobs on a pool of threads that must not overtake each other: those of one line go one after the other, in the order
// in which they came; those of other lines go beside them.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "actors/core/work_pool.hpp"

namespace troupe::actors {

// Threads: any. The pool is stopped before the lines go; what waits then is dropped.
class JobLines {
 public:
  explicit JobLines(WorkPool& pool) : pool_(pool) {}

  // The pool's errors. RESOURCE_EXHAUSTED, too, when kLongest jobs of the line have not ended.
  absl::Status Post(const std::string& line, std::function<void()> job);

  static constexpr std::size_t kLongest = 16;

 private:
  using Jobs = std::deque<std::function<void()>>;

  void Work(const std::string& line);

  WorkPool& pool_;
  std::mutex mutex_;
  std::map<std::string, Jobs> lines_;  // guarded by mutex_; of each line the first job is under way
};

}  // namespace troupe::actors
