// STREAM PIPELINE: the two threads of a stream: operations are submitted in the order in which they were pushed, and
// told of in that order when the GPU has done them.
//
//   pushed (queue_) -> submitted (flying_) -> told
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace troupe::gpu::cuda {

// Push from any thread. `Operation` and `Flying`, what becomes of it, are moved.
template <class Operation, class Flying>
class StreamPipeline {
 public:
  // Called on the pipeline's threads; `submit` also on the thread that pushes.
  struct Calls {
    std::function<void()> enter;  // the thread that tells begins
    std::function<Flying(Operation)> submit;
    std::function<void(Flying&)> tell;
  };
  explicit StreamPipeline(Calls calls)
      : calls_(std::move(calls)), submitter_([this] { SubmitAll(); }), teller_([this] { TellAll(); }) {}
  ~StreamPipeline() { Close(); }
  StreamPipeline(const StreamPipeline&) = delete;
  StreamPipeline& operator=(const StreamPipeline&) = delete;

  // `at_once`: it can be submitted without waiting; it is, when nothing is before it.
  void Push(Operation operation, bool at_once) {
    const std::lock_guard lock(mutex_);
    if (at_once && queue_.empty() && !submitting_) {
      flying_.push_back(calls_.submit(std::move(operation)));
      flew_.notify_one();
      return;
    }
    queue_.push_back(std::move(operation));
    pushed_.notify_one();
  }

  // Waits until all has been told, and ends the threads.
  void Close() {
    {
      std::unique_lock lock(mutex_);
      if (phase_ != Phase::kOpen) return;
      phase_ = Phase::kClosing;
      empty_.wait(lock, [this] { return queue_.empty() && !submitting_ && flying_.empty() && !telling_; });
      phase_ = Phase::kEnding;
    }
    pushed_.notify_all();
    flew_.notify_all();
    submitter_.join();
    teller_.join();
  }

 private:
  enum class Phase { kOpen, kClosing, kEnding };  // ending: the threads do, when nothing is left
  void SubmitAll() {
    std::unique_lock lock(mutex_);
    for (;;) {
      pushed_.wait(lock, [this] { return phase_ == Phase::kEnding || !queue_.empty(); });
      if (queue_.empty()) return;
      Operation operation = std::move(queue_.front());
      queue_.pop_front();
      submitting_ = true;
      lock.unlock();
      Flying flying = calls_.submit(std::move(operation));
      lock.lock();
      submitting_ = false;
      flying_.push_back(std::move(flying));
      flew_.notify_one();
    }
  }

  void TellAll() {
    calls_.enter();
    std::unique_lock lock(mutex_);
    for (;;) {
      flew_.wait(lock, [this] { return phase_ == Phase::kEnding || !flying_.empty(); });
      if (flying_.empty()) return;
      telling_ = true;
      {
        Flying flying = std::move(flying_.front());
        flying_.pop_front();
        lock.unlock();
        calls_.tell(flying);
      }  // what it owned is gone before its stream is
      lock.lock();
      telling_ = false;
      if (queue_.empty() && !submitting_ && flying_.empty()) empty_.notify_all();
    }
  }

  const Calls calls_;
  std::mutex mutex_;
  std::condition_variable pushed_;
  std::condition_variable flew_;
  std::condition_variable empty_;
  std::deque<Operation> queue_;  // guarded by mutex_, as all below
  bool submitting_ = false;
  std::deque<Flying> flying_;
  bool telling_ = false;
  Phase phase_ = Phase::kOpen;
  std::thread submitter_;
  std::thread teller_;
};

}  // namespace troupe::gpu::cuda
