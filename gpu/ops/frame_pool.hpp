// FRAME POOL: what each run of something writes to, where several runs go on at the same time.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe::gpu {

// As many frames as there were runs at a time at most; a run has one for itself. Thread-safe.
template <class Frame>
class FramePool {
 public:
  // Goes back to its pool, which outlives it.
  class Lease {
   public:
    Lease(FramePool& pool, std::unique_ptr<Frame> frame) : pool_(&pool), frame_(std::move(frame)) {}
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (frame_ != nullptr) pool_->Return(std::move(frame_));
    }
    [[nodiscard]] Frame* operator->() const { return frame_.get(); }
    [[nodiscard]] Frame& operator*() const { return *frame_; }

   private:
    FramePool* pool_;
    std::unique_ptr<Frame> frame_;
  };

  // `make` is called when all frames are in use.
  template <class Make>
  [[nodiscard]] Lease Take(const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      if (!spare_.empty()) {
        Lease lease(*this, std::move(spare_.back()));
        spare_.pop_back();
        return lease;
      }
    }
    return Lease(*this, make());
  }

 private:
  void Return(std::unique_ptr<Frame> frame) {
    const std::lock_guard lock(mutex_);
    spare_.push_back(std::move(frame));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> spare_;  // guarded by mutex_
};

}  // namespace troupe::gpu
