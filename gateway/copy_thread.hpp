// COPY THREAD: copies tensors between the gateway and its clients' shared memory, so that no other client of
// the HTTP front waits for 100 MiB of one request.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace troupe::gateway {

// One thread that does one job after another. What waits is bounded by its users: each job is of one request,
// whose tensors are charged. Thread-safe.
class CopyThread {
 public:
  using Job = std::function<void()>;
  CopyThread() : thread_([this] { Run(); }) {}
  CopyThread(const CopyThread&) = delete;
  CopyThread& operator=(const CopyThread&) = delete;
  ~CopyThread() { Stop(); }

  // Dropped after Stop: the server that would answer has ended by then.
  void Do(Job job);
  // Ends the job under way, and drops those that wait. Not from a job.
  void Stop();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // guarded by mutex_
  bool stopped_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace troupe::gateway
