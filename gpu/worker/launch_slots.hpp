// LAUNCH SLOTS: the runs that a device computes at a time, each on a stream of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gpu/device/device.hpp"
#include "gpu/worker/compute_watch.hpp"
#include "gpu/worker/lanes.hpp"
#include "gpu/worker/run.hpp"
#include "gpu/worker/task_queue.hpp"

namespace troupe::gpu {

// free -(Launch)-> computes -(Ended is called)-> Leave -> free. The main loop's thread.
class LaunchSlots {
 public:
  // Called on the main loop's thread.
  struct Calls {
    std::function<void(RunId, const Completion&, const std::vector<proto::TensorSpec>& outputs)> ended;
    std::function<void(RunId, std::size_t step)> reached;  // one of the run's marks
  };
  LaunchSlots(Device& device, TaskQueue& queue, Lanes lanes, Calls calls);

  // As many as the device computes at a time.
  [[nodiscard]] std::size_t size() const { return slots_.size(); }
  [[nodiscard]] bool HasFree() const;
  // There is a free slot, and the run may begin (LaunchGate).
  void Launch(RunId id, Run& run);
  // The run has ended: its slot is free.
  void Leave(const Run& run);
  // Brings the control page up to date.
  void Show(Time now);
  // Waits for what computes.
  void Close();

 private:
  struct Slot {
    std::unique_ptr<Stream> stream;  // from its first launch on
    const Run* run = nullptr;        // that computes there; null: free
  };

  Device& device_;
  TaskQueue& queue_;
  Lanes lanes_;
  const Calls calls_;
  ComputeWatch watch_;
  std::vector<Slot> slots_;
};

}  // namespace troupe::gpu
