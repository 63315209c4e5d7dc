#include <time.h>

#include <algorithm>
#include <utility>

#include "base/status.hpp"
#include "gpu/device/virtual_plan.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

// Makes steps take longer than the processor takes for them, as on a GPU of which a launch has a part. What
// counts is the time that the lane's thread computed, not what others took of the processor meanwhile.
class StepPace {
 public:
  StepPace(VirtualEngine& engine, double slowdown) : engine_(engine), slowdown_(slowdown) {}
  void StepBegins() {
    if (slowdown_ <= 1) return;
    begin_ = transport::SteadyNow();
    computed_ = ThreadTime();
  }
  absl::Status StepEnded() {
    if (slowdown_ <= 1 || begin_ == Time()) return absl::OkStatus();
    const Duration computed = ThreadTime() - computed_;
    const Time end = std::exchange(begin_, Time()) + FromSeconds(ToSeconds(computed) * slowdown_);
    return end > transport::SteadyNow() ? engine_.SleepUntil(end) : absl::OkStatus();
  }

 private:
  static Duration ThreadTime() {
    timespec time{};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec);
  }
  VirtualEngine& engine_;
  const double slowdown_;
  Time begin_;
  Duration computed_{};
};

class RealPlan final : public VirtualPlan {
 public:
  static absl::StatusOr<std::shared_ptr<VirtualPlan>> Make(const proto::Model& model,
                                                           std::vector<proto::TensorSpec> inputs,
                                                           std::unique_ptr<Plan> plan, double saturation) {
    auto made = std::make_shared<RealPlan>();
    const auto outputs = plan->outputs();
    TROUPE_RETURN_IF_ERROR(made->Describe(model, std::move(inputs), {outputs.begin(), outputs.end()}));
    made->plan_ = std::move(plan);
    made->saturation_ = saturation;
    return made;
  }

  absl::StatusOr<std::vector<proto::TensorSpec>> Run(const LaunchArguments& arguments,
                                                     const BeforeStep& before_step,
                                                     ComputeLane lane) override {
    PlanBindings bindings;
    bindings.weights = arguments.weights.address;
    std::vector<WeightPlace> places;
    places.reserve(arguments.pieces.size());
    for (const WeightPiece& piece : arguments.pieces)
      places.push_back({piece.offset, piece.length, piece.at.address});
    bindings.places = places;
    bindings.activations = arguments.activations.address;
    for (const DeviceRange& input : arguments.inputs) {
      bindings.inputs.push_back(input.address);
      bindings.input_bytes.push_back(input.size);
    }
    for (const DeviceRange& output : arguments.outputs) bindings.outputs.push_back(output.address);
    StepPace pace(lane.engine, RunCost{.saturation = saturation_}.SlownessOn(arguments.share.part()));
    bindings.before_step = [&](std::size_t step) -> absl::Status {
      TROUPE_RETURN_IF_ERROR(pace.StepEnded());
      TROUPE_RETURN_IF_ERROR(before_step(step));
      pace.StepBegins();
      return absl::OkStatus();
    };
    TROUPE_ASSIGN_OR_RETURN(auto outputs, plan_->Run(bindings));
    TROUPE_RETURN_IF_ERROR(pace.StepEnded());
    return outputs;
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
  double saturation_ = 1;
};

}  // namespace

absl::StatusOr<std::shared_ptr<VirtualPlan>> MakeRealPlan(const proto::Model& model,
                                                          std::span<const std::byte> weights,
                                                          std::vector<proto::TensorSpec> inputs,
                                                          const PlanBuilder& builder, int threads,
                                                          double saturation) {
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, builder(model, weights, inputs, threads));
  return RealPlan::Make(model, std::move(inputs), std::move(plan), saturation);
}

}  // namespace troupe::gpu
