// CPU PLAN: a program whose memory is laid out, ready to run. Internal to gpu/engine.
#pragma once

#include <memory>
#include <vector>

#include "gpu/engine/plan.hpp"
#include "gpu/engine/program.hpp"
#include "gpu/ops/frame_pool.hpp"

namespace troupe::gpu {

class CpuPlan final : public Plan {
 public:
  explicit CpuPlan(Program program);
  [[nodiscard]] Bytes activation_bytes() const override { return program_.activation_bytes; }
  [[nodiscard]] std::span<const proto::TensorSpec> outputs() const override { return program_.output_specs; }
  [[nodiscard]] Bytes output_bytes(std::size_t i) const override;
  [[nodiscard]] std::size_t step_count() const override { return program_.instructions.size(); }
  [[nodiscard]] Bytes step_activations(std::size_t step) const override {
    return program_.step_activations[step];
  }
  [[nodiscard]] Bytes activation_extent(std::size_t step) const override {
    return program_.activation_extents[step];
  }
  [[nodiscard]] const StepWeights& step_weights(std::size_t step) const override {
    return steps_[step].weights;
  }
  absl::StatusOr<std::vector<proto::TensorSpec>> Run(const PlanBindings& bindings) const override;

  // As a subgraph of a step of another plan, on whose threads it runs. `in` has the shapes of this run, `out` memory as
  // large as planned; its shapes are told. Asks `pause` before each step.
  absl::Status RunSubgraph(std::span<const TensorView> in, std::span<TensorView> out, std::byte* activations,
                           const Pause& pause) const;
  [[nodiscard]] const ValueInfo& input(std::size_t i) const { return program_.values[i].info; }

 private:
  struct Step {
    StepWeights weights;
    std::vector<TensorView> in;
    std::vector<TensorView> out;
    bool shapes_vary = false;  // some input or output has a shape that only the run knows
  };
  // What one run writes to.
  struct Frame {
    struct Views {
      std::vector<TensorView> in;
      std::vector<TensorView> out;
    };
    std::vector<Views> steps;
    std::vector<Shape> shapes;  // per value: the shape in this run
    PlanBindings subgraph;      // of a run as one
  };

  void PrepareStep(const Instruction& instruction, Step& step) const;
  [[nodiscard]] std::unique_ptr<Frame> MakeFrame() const;
  absl::Status CheckBindings(const PlanBindings& bindings) const;
  absl::Status CheckTextInputs(const PlanBindings& bindings) const;
  [[nodiscard]] std::byte* Address(const ProgramValue& value, const PlanBindings& bindings) const;
  void Bind(std::size_t step, Frame& frame, const PlanBindings& bindings) const;
  absl::Status KeepShapes(std::size_t step, Frame& frame) const;
  absl::Status RunSteps(Frame& frame, const PlanBindings& bindings) const;

  Program program_;
  std::vector<Step> steps_;
  std::vector<std::size_t> text_inputs_;  // values
  mutable FramePool<Frame> frames_;
};

}  // namespace troupe::gpu
