// GPU TIME: how much of a GPU's time each run had, of those that computed on it at the same time.
//
// While n runs without a share of the SMs compute, each of them has an n-th of the GPU's time. So their times add up to the
// time in which the GPU was busy, and a run that was alone had all of it. A run with a share computes on SMs of its own, and
// is not counted here.
#pragma once

#include <cstdint>

#include "base/units.hpp"

namespace troupe::gpu {

// Pure.
class GpuTime {
 public:
  // Of one run.
  class Part {
   public:
    // Returns the part of `computed` in which the run had the GPU. `computed` is measured by the device's own clock, which
    // begins and ends later than Begin and End are called.
    [[nodiscard]] Duration Of(Duration computed) const;

   private:
    friend class GpuTime;
    bool computes_ = false;
    Time since_{};  // while it computes
    Duration shown_{};
    Duration computed_{};  // before that
    Duration had_{};
  };

  // The run computes from now on.
  void Begin(Part& part, Time now);
  // It pauses, or has ended. Nothing happens to a run that does not compute.
  void End(Part& part, Time now);
  // So many runs of other workers compute on the same GPU from now on.
  void SetOthers(std::uint32_t runs, Time now);

 private:
  // Brings the clock up to date: while n runs compute, it goes at an n-th of the speed.
  void Advance(Time now);

  Time last_{};
  Duration clock_{};
  std::uint32_t here_ = 0;
  std::uint32_t others_ = 0;
};

}  // namespace troupe::gpu
