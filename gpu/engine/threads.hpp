// The number of OpenMP threads for a stretch of code: primitives are made for the number that is set at the
// time.
#pragma once

#include <omp.h>

namespace troupe::gpu {

class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~ThreadsScope() { omp_set_num_threads(before_); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_;
};

}  // namespace troupe::gpu
