// MEMORY PROFILE: what one plan (a model at one batch and input size) needs, step by step. Made once, when
// the plan is prepared; what it says of times follows a measured run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.hpp"
#include "gpu/device/device.hpp"

namespace troupe::gpu {

// A part of a model's weights and the steps between which it has to be on the device: from the first that
// reads it to the last.
struct WeightPart {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::size_t first = 0;
  std::size_t last = 0;
  friend bool operator==(const WeightPart&, const WeightPart&) = default;
};

// For a model whose weights come and go by layer: allocate each part before step `first` is launched, give it
// back when step `last` has ended (004 section 5.1: lazy allocation, eager recycling). Parts begin at
// multiples of `granularity`, do not overlap, and lie in the order of their offsets; what no step reads is in
// none.
[[nodiscard]] std::vector<WeightPart> PlanWeights(const DevicePlan& plan, Bytes granularity);

class MemoryProfile {
 public:
  enum class Weights {
    kResident,  // they are there before and stay: not part of what a run needs
    kByLayer,   // they come and go as PlanWeights says
    kWhole,     // they come whole and go with the run
  };
  enum class Activations {
    kByLife,  // from the step that writes them to the last that reads them
    kWhole,   // all of them, during the whole run
    kAhead,   // what this step and those behind it use: what a worker allocates for a launch, and trims
  };
  // `run_time` is spread evenly over the steps.
  MemoryProfile(const DevicePlan& plan, Duration run_time, Weights weights, Activations activations,
                Bytes granularity);
  // For tests and models of plans: each step's bytes.
  MemoryProfile(std::vector<Bytes> steps, Duration run_time);

  [[nodiscard]] Bytes peak() const { return peak_; }
  [[nodiscard]] Duration run_time() const { return run_time_; }
  [[nodiscard]] std::size_t steps() const { return steps_.size(); }
  [[nodiscard]] Bytes At(std::size_t step) const { return steps_[step]; }
  // The step that runs when a run has lasted so long; the last one for ever after.
  [[nodiscard]] std::size_t StepAfter(Duration begun) const;
  // The most that the steps first to last need.
  [[nodiscard]] Bytes MaxOf(std::size_t first, std::size_t last) const;

 private:
  std::vector<Bytes> steps_;
  Duration run_time_;
  Bytes peak_;
};

}  // namespace troupe::gpu
