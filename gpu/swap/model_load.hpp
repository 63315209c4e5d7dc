// MODEL LOAD: one model on its way onto a device, as the runs that need it see it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "gpu/device/device.hpp"
#include "gpu/swap/groups.hpp"

namespace troupe::gpu {

//   loading (its groups arrive in order) -> complete | failed
// The maker of the copies makes it and shares it with the launches that wait; it outlives both. Arrived and
// Failed are called on the device's threads, everything else from any. Waiting for a group that is there
// already returns at once.
class ModelLoad : public std::enable_shared_from_this<ModelLoad> {
 public:
  // `whole`: the groups count only when all are there, so that no run may end before.
  explicit ModelLoad(std::vector<Group> groups, bool whole = false);

  // The next group is there.
  void Arrived(Time at);
  // No more will come; after complete: nothing happens.
  void Failed(absl::Status status);
  // The device raises signals, too: the first of them for group `first`, and so on up to group `behind`. All groups
  // before `first` are there, and the copies of these have been ordered. The same signals may be named again with a
  // greater `behind`.
  void RaisedByDevice(SignalsPtr signals, std::size_t first, std::size_t behind);

  [[nodiscard]] std::span<const Group> groups() const { return groups_; }
  [[nodiscard]] std::size_t arrived() const { return arrived_.load(std::memory_order_acquire); }
  [[nodiscard]] bool complete() const { return arrived() == groups_.size(); }
  // When the first `count` groups were there, which they are; Time() for none.
  [[nodiscard]] Time ArrivalOf(std::size_t count) const;

  // When the last group will be there, if the link goes on as between the groups that have arrived;
  // Time::max() when those are too few to tell.
  [[nodiscard]] Time ExpectedEnd() const;

  // An event that is done when the first `count` groups are there, with an error when they will not be; null
  // when they are.
  [[nodiscard]] EventPtr After(std::size_t count);
  // For a launch of `plan`: each step waits for the groups that it reads.
  [[nodiscard]] StepGate GateFor(const DevicePlan& plan);

 private:
  class GroupEvent;
  const std::vector<Group> groups_;
  const bool whole_;
  std::atomic<std::size_t> arrived_ = 0;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Time> arrivals_;  // guarded by mutex_
  absl::Status failed_;         // guarded by mutex_
  struct OnDevice {
    SignalsPtr signals;  // null: the host alone knows of arrivals
    std::size_t first = 0;
    std::size_t behind = 0;
  };
  OnDevice on_device_;  // guarded by mutex_
};

}  // namespace troupe::gpu
