// How the lanes of the virtual GPU share its one compute engine.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "gpu/device/virtual_engine.hpp"

namespace troupe::gpu {

// PROCESSOR SHARING: while k launches work each gets 1/k of the engine, so the clock of their work passes at
// 1/k of the rate of time (and as fast as time while one works or none does). All launches that work see one
// clock: a launch that joins or leaves only changes its rate. Pure: time comes in and never goes back.
class SharedClock {
 public:
  explicit SharedClock(Time now) : at_(now) {}
  void Join(Time now);
  void Leave(Time now);
  // What it shows.
  [[nodiscard]] Duration Read(Time now) const;
  // When it will show `reading`, if no launch joins or leaves before; the past for a reading that has passed.
  [[nodiscard]] Time When(Duration reading) const;

 private:
  [[nodiscard]] std::int64_t Rate() const { return working_ > 1 ? static_cast<std::int64_t>(working_) : 1; }
  Time at_;  // of the last change, when it showed `reading_`
  Duration reading_{};
  std::size_t working_ = 0;
};

// The engine under its lanes. Real plans share the processor as the system sees fit; timed ones share this
// clock. Owner: the device; thread-safe.
class ComputeShare {
 public:
  ComputeShare();
  // A launch has got its lane, and has left it.
  void Began(Time now);
  void Ended(Time now);
  // How long there was a launch on some lane.
  [[nodiscard]] Duration busy_time() const;

  // The launch that has this lane does what takes so long alone. Cancelled when the lane closes; counts as
  // progress while it lasts.
  absl::Status Work(Duration work, VirtualEngine& lane);
  // The same on SMs of its own: what others do is nothing to it.
  static absl::Status WorkApart(Duration work, VirtualEngine& lane);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  SharedClock clock_;  // guarded by mutex_, as all below
  std::size_t launches_ = 0;
  Time busy_since_;
  Duration busy_{};
};

}  // namespace troupe::gpu
