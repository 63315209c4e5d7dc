// The compute engine of the virtual GPU: as many lanes as launches may compute at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/device/compute_share.hpp"
#include "gpu/device/virtual_engine.hpp"

namespace troupe::gpu {

// Owner: the device. Thread-safe.
class ComputeLanes {
 public:
  // `threads`: that each launch computes with.
  ComputeLanes(std::size_t lanes, int threads);
  // For one more stream that launches: the lanes in turn, so that as many streams as there are lanes have one
  // each.
  [[nodiscard]] VirtualEngine& Assign();
  [[nodiscard]] ComputeShare& share() { return share_; }
  // Of all lanes together: busy while one is; what hangs on one lane is seen at its stream.
  [[nodiscard]] EngineState state() const;
  [[nodiscard]] Duration busy_time() const { return share_.busy_time(); }
  // A fault: no lane ends an operation any more, and all look busy.
  void Freeze();

 private:
  ComputeShare share_;
  std::mutex mutex_;
  std::size_t next_ = 0;                               // guarded by mutex_
  std::vector<std::unique_ptr<VirtualEngine>> lanes_;  // their threads end before what they share
};

}  // namespace troupe::gpu
