// A launch as an operation of a lane of the compute engine, and what all plans of the virtual GPU describe.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/device/launch_limit.hpp"
#include "gpu/device/tensor_bytes.hpp"
#include "gpu/device/virtual_plan.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

class LaunchOperation final : public VirtualOperation {
 public:
  LaunchOperation(std::shared_ptr<VirtualPlan> plan, LaunchArguments arguments, ComputeShare& share,
                  OnLaunched done)
      : plan_(std::move(plan)),
        arguments_(std::move(arguments)),
        share_(share),
        done_(std::move(done)),
        limit_(arguments_.limit) {}

  bool Turn(VirtualEngine& engine) override {
    completion.begin = transport::SteadyNow();
    share_.Began(completion.begin);
    limit_.Began(completion.begin);
    const auto before_step = [this, &engine](std::size_t step) -> absl::Status {
      TROUPE_RETURN_IF_ERROR(engine.Tick());
      TROUPE_RETURN_IF_ERROR(CutAtLimit(step));
      while (mark_ < arguments_.marks.size() && arguments_.marks[mark_] <= step)
        arguments_.reached(arguments_.marks[mark_++]);
      if (arguments_.gate) TROUPE_RETURN_IF_ERROR(Await(arguments_.gate(step), engine).status());
      return arguments_.turn ? TakeTurn(engine) : absl::OkStatus();
    };
    auto outputs = plan_->Run(arguments_, before_step, {engine, share_});
    completion.status = outputs.status();
    if (outputs.ok()) outputs_ = *std::move(outputs);
    completion.end = transport::SteadyNow();
    share_.Ended(completion.end);
    return true;
  }

  void Report() override {
    if (done_) done_(completion, std::move(outputs_));
  }

 private:
  absl::Status CutAtLimit(std::size_t step) {
    const Time now = transport::SteadyNow();
    if (!limit_.Passed(now)) return absl::OkStatus();
    completion.cut_after = limit_.Used(now);
    return CutBefore(step, plan_->step_count(), completion.cut_after);
  }

  // How long it waited.
  absl::StatusOr<Duration> Await(const EventPtr& event, VirtualEngine& engine) {
    if (event == nullptr) return Duration(0);
    const Time begin = transport::SteadyNow();
    // In slices, so that a device that closes is noticed. This engine lives: a copy that does not come is its
    // own engine's to show.
    while (!event->done()) {
      if (event->Wait(std::chrono::milliseconds(50)).ok()) break;
      TROUPE_RETURN_IF_ERROR(engine.Tick());
    }
    const Duration waited = transport::SteadyNow() - begin;
    limit_.Waited(waited);
    TROUPE_RETURN_IF_ERROR(event->status());
    return waited;
  }

  absl::Status TakeTurn(VirtualEngine& engine) {
    const Duration used = transport::SteadyNow() - completion.begin - completion.paused - told_;
    if (used < arguments_.group) return absl::OkStatus();
    told_ += used;
    TROUPE_ASSIGN_OR_RETURN(const Duration waited, Await(arguments_.turn(used), engine));
    completion.paused += waited;
    return absl::OkStatus();
  }

  std::shared_ptr<VirtualPlan> plan_;
  LaunchArguments arguments_;
  ComputeShare& share_;
  OnLaunched done_;
  std::vector<proto::TensorSpec> outputs_;
  std::size_t mark_ = 0;  // the next one
  LaunchLimit limit_;
  Duration told_{};  // time that it had the device, and asked with
};

absl::StatusOr<std::vector<Bytes>> SizesOf(const std::vector<proto::TensorSpec>& specs) {
  std::vector<Bytes> sizes;
  for (const proto::TensorSpec& spec : specs) {
    TROUPE_ASSIGN_OR_RETURN(const Bytes size, ConcreteBytes(spec));
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

absl::Status VirtualPlan::Describe(const proto::Model& model, std::vector<proto::TensorSpec> inputs,
                                   std::vector<proto::TensorSpec> outputs) {
  TROUPE_ASSIGN_OR_RETURN(input_bytes_, SizesOf(inputs));
  TROUPE_ASSIGN_OR_RETURN(output_bytes_, SizesOf(outputs));
  inputs_ = std::move(inputs);
  outputs_ = std::move(outputs);
  weights_bytes_ = Bytes(model.weights_bytes());
  return absl::OkStatus();
}

std::shared_ptr<VirtualOperation> MakeLaunch(std::shared_ptr<VirtualPlan> plan, LaunchArguments arguments,
                                             ComputeShare& share, OnLaunched done) {
  TROUPE_CHECK(arguments.inputs.size() == plan->inputs().size(), "a launch binds every input");
  TROUPE_CHECK(arguments.outputs.size() == plan->outputs().size(), "a launch binds every output");
  TROUPE_CHECK(arguments.activations.size >= plan->activation_bytes(),
               "a launch needs its activation memory");
  TROUPE_CHECK(!arguments.pieces.empty() || arguments.weights.size >= plan->weights_bytes(),
               "a launch needs its weights");
  TROUPE_CHECK(arguments.marks.empty() || arguments.reached, "marks need a callback");
  return std::make_shared<LaunchOperation>(std::move(plan), std::move(arguments), share, std::move(done));
}

}  // namespace troupe::gpu
