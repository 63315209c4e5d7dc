// The end of one operation on a GPU: first a promise, then a CUDA event that other streams can wait for on
// the GPU itself, then done.
#pragma once

#include <condition_variable>
#include <mutex>

#include "gpu/cuda/context.hpp"
#include "gpu/device/event.hpp"

namespace troupe::gpu::cuda {

//   pushed -> submitted (on the GPU's own stream) -> done          pushed -> done (it failed before)
class CudaEvent final : public Event {
 public:
  [[nodiscard]] bool done() const override;
  [[nodiscard]] absl::Status status() const override;
  [[nodiscard]] absl::Status Wait(Duration timeout) const override;

  // `end` is recorded behind the operation.
  void Submitted(EventHandle end);
  void Complete(absl::Status status);

  // What an operation that comes after it has to do.
  struct Ahead {
    absl::Status status;  // that it failed with
    EventHandle end;      // to wait for on the GPU; null: nothing, it is over
  };
  [[nodiscard]] bool submitted() const;
  // Blocks until it is submitted, which may take as long as what it waits for itself.
  [[nodiscard]] Ahead WaitSubmitted() const;
  void WaitDone() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  EventHandle end_;  // guarded by mutex_, as all below
  bool done_ = false;
  absl::Status status_;
};

}  // namespace troupe::gpu::cuda
