#include "base/status.hpp"
#include "gpu/device/virtual_plan.hpp"

namespace troupe::gpu {
namespace {

class RealPlan final : public VirtualPlan {
 public:
  static absl::StatusOr<std::shared_ptr<VirtualPlan>> Make(const proto::Model& model,
                                                           std::vector<proto::TensorSpec> inputs,
                                                           std::unique_ptr<Plan> plan) {
    auto made = std::make_shared<RealPlan>();
    const auto outputs = plan->outputs();
    TROUPE_RETURN_IF_ERROR(made->Describe(model, std::move(inputs), {outputs.begin(), outputs.end()}));
    made->plan_ = std::move(plan);
    return made;
  }

  absl::StatusOr<std::vector<proto::TensorSpec>> Run(const LaunchArguments& arguments,
                                                     const BeforeStep& before_step, ComputeLane) override {
    PlanBindings bindings;
    bindings.weights = arguments.weights.address;
    std::vector<WeightPlace> places;
    places.reserve(arguments.pieces.size());
    for (const WeightPiece& piece : arguments.pieces)
      places.push_back({piece.offset, piece.length, piece.at.address});
    bindings.places = places;
    bindings.activations = arguments.activations.address;
    for (const DeviceRange& input : arguments.inputs) bindings.inputs.push_back(input.address);
    for (const DeviceRange& output : arguments.outputs) bindings.outputs.push_back(output.address);
    bindings.before_step = before_step;
    return plan_->Run(bindings);
  }

  [[nodiscard]] Bytes output_bytes(std::size_t i) const override { return plan_->output_bytes(i); }
  [[nodiscard]] Bytes activation_bytes() const override { return plan_->activation_bytes(); }
  [[nodiscard]] std::size_t step_count() const override { return plan_->step_count(); }
  [[nodiscard]] Bytes step_activations(std::size_t step) const override {
    return plan_->step_activations(step);
  }
  [[nodiscard]] Bytes activation_extent(std::size_t step) const override {
    return plan_->activation_extent(step);
  }
  [[nodiscard]] std::span<const std::pair<std::uint64_t, std::uint64_t>> step_weights(
      std::size_t step) const override {
    return plan_->step_weights(step).ranges;
  }

 private:
  std::unique_ptr<Plan> plan_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<VirtualPlan>> MakeRealPlan(const proto::Model& model,
                                                          std::span<const std::byte> weights,
                                                          std::vector<proto::TensorSpec> inputs,
                                                          const PlanBuilder& builder, int threads) {
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, builder(model, weights, inputs, threads));
  return RealPlan::Make(model, std::move(inputs), std::move(plan));
}

}  // namespace troupe::gpu
