// LOOP KERNEL: runs one plan again and again.
//
//   states: initial values -> trip 0 -> trip 1 -> ... -> outputs; two places each, which take turns
//   parts:  one part of an input for each trip (Scan)
//   gathered: what each trip made, one beside the other in an output
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "gpu/engine/branch_kernel.hpp"
#include "gpu/ops/frame_pool.hpp"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// An axis of a tensor along which the trips go.
struct TripAxis {
  std::size_t axis = 0;
  bool backwards = false;
};

struct LoopForm {
  // A Loop: input 0 is the most trips and may be absent, input 1 the condition and may be absent. The body gets the
  // trip's number and true, and tells the condition first. Else a Scan: as many trips as its parts say.
  bool counts = false;
  std::size_t states = 0;          // they are the step's inputs behind those two, and its first outputs
  std::vector<TripAxis> parts;     // inputs behind the states
  std::vector<TripAxis> gathered;  // outputs behind the states
  SubgraphPlan body;
};

class LoopKernel final : public Kernel {
 public:
  // `out` is what the step's outputs are planned for.
  LoopKernel(LoopForm form, std::span<const ValueInfo> out);
  [[nodiscard]] Bytes scratch() const override { return scratch_; }
  absl::Status Run(std::span<const TensorView> in, std::span<TensorView> out,
                   std::byte* scratch) const override;
  absl::Status RunInParts(std::span<const TensorView> in, std::span<TensorView> out, std::byte* scratch,
                          const Pause& pause) const override;

 private:
  // What one run writes to.
  struct Frame {
    std::vector<TensorView> in;
    std::vector<TensorView> out;
    std::vector<Shape> gathered;  // of one trip's part; of a run without trips, as planned
    std::int64_t trips = 0;
  };

  [[nodiscard]] std::size_t given() const { return form_.counts ? 2 : 0; }
  [[nodiscard]] std::size_t told() const { return form_.counts ? 1 : 0; }
  [[nodiscard]] std::uint64_t Reserve(Bytes size);
  void Begin(std::span<const TensorView> in, std::byte* scratch, Frame& frame) const;
  // The most trips that this run may make.
  [[nodiscard]] absl::StatusOr<std::int64_t> MostTrips(std::span<const TensorView> in) const;
  absl::Status BringParts(std::span<const TensorView> in, std::int64_t trip, std::byte* scratch,
                          Frame& frame) const;
  absl::Status Gather(std::int64_t trip, std::int64_t trips, std::span<TensorView> out, Frame& frame) const;
  void Turn(std::int64_t trip, std::byte* scratch, Frame& frame) const;
  void Finish(std::span<const TensorView> in, std::span<TensorView> out, const Frame& frame) const;

  LoopForm form_;
  std::vector<Shape> planned_;                // of the gathered outputs
  std::vector<Bytes> rooms_;                  // of the gathered outputs
  std::vector<std::uint64_t> places_;         // in the scratch, behind the body's: two for each state
  std::vector<std::uint64_t> part_places_;    // for each part
  std::vector<std::uint64_t> gather_places_;  // for each gathered output: what the body writes
  std::uint64_t numbers_ = 0;                 // the trip's number, true, the condition: 64 bytes each
  Bytes scratch_;
  mutable FramePool<Frame> frames_;
};

}  // namespace troupe::gpu
