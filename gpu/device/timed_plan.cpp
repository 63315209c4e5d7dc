#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/device/launch_limit.hpp"
#include "gpu/device/tensor_bytes.hpp"
#include "gpu/device/virtual_plan.hpp"
#include "gpu/ops/operator.hpp"
#include "gpu/ops/text_room.hpp"
#include "proto/open_dimension.hpp"

namespace troupe::gpu {
namespace {

using StepRanges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

class TimedPlan final : public VirtualPlan {
 public:
  static absl::StatusOr<std::shared_ptr<VirtualPlan>> Make(const proto::Model& model,
                                                           std::vector<proto::TensorSpec> inputs,
                                                           std::vector<proto::TensorSpec> outputs,
                                                           const RunCost& cost) {
    auto made = std::make_shared<TimedPlan>();
    TROUPE_RETURN_IF_ERROR(made->Describe(model, std::move(inputs), std::move(outputs)));
    made->cost_ = cost;
    made->ReadSteps(model);
    return made;
  }

  absl::StatusOr<std::vector<proto::TensorSpec>> Run(const LaunchArguments& arguments,
                                                     const BeforeStep& before_step,
                                                     ComputeLane lane) override {
    const auto steps = static_cast<std::int64_t>(steps_.size());
    const Duration run_time = cost_.On(arguments.share);
    Duration work{};  // not waited for yet
    Duration piece = LaunchLimit::Piece(arguments.limit);
    if (arguments.turn && (piece <= Duration::zero() || arguments.group < piece)) piece = arguments.group;
    for (std::int64_t step = 0; step < steps; ++step) {
      TROUPE_RETURN_IF_ERROR(before_step(static_cast<std::size_t>(step)));
      work += run_time * (step + 1) / steps - run_time * step / steps;
      // A launch that takes turns asks for them within a long step, too: how a model is cut into steps says
      // nothing here of how long they take.
      while (arguments.turn && work > 2 * arguments.group) {
        TROUPE_RETURN_IF_ERROR(Work(arguments.group, arguments.share, lane));
        TROUPE_RETURN_IF_ERROR(before_step(static_cast<std::size_t>(step)));
        work -= arguments.group;
      }
      // A step that has to wait for its weights delays the steps behind it; without gates or marks the steps
      // cannot be seen. A launch with a limit looks at the time between its pieces.
      const bool long_enough = piece > Duration::zero() && work >= piece;
      if (arguments.gate || arguments.reached || long_enough || step + 1 == steps)
        TROUPE_RETURN_IF_ERROR(Work(std::exchange(work, Duration(0)), arguments.share, lane));
    }
    for (std::size_t i = 0; i < outputs().size(); ++i) {
      std::memset(arguments.outputs[i].address, 0, output_bytes(i).count());
    }
    return std::vector<proto::TensorSpec>(outputs().begin(), outputs().end());
  }

  [[nodiscard]] Bytes activation_bytes() const override { return Bytes(0); }
  [[nodiscard]] std::size_t step_count() const override { return steps_.size(); }
  [[nodiscard]] std::span<const std::pair<std::uint64_t, std::uint64_t>> step_weights(
      std::size_t step) const override {
    return steps_[step];
  }

 private:
  static absl::Status Work(Duration work, const SmShare& share, ComputeLane lane) {
    return share.sms > 0 ? ComputeShare::WorkApart(work, lane.engine) : lane.share.Work(work, lane.engine);
  }
  void ReadSteps(const proto::Model& model) {
    std::map<std::string_view, const proto::Weight*> weights;
    for (const proto::Weight& weight : model.weights()) weights[weight.name()] = &weight;
    for (const proto::Step& step : model.steps()) {
      StepRanges ranges;
      for (const std::string& input : step.inputs()) {
        const auto found = weights.find(input);
        if (found != weights.end()) ranges.emplace_back(found->second->offset(), found->second->length());
      }
      steps_.push_back(std::move(ranges));
    }
    if (steps_.empty()) steps_.emplace_back();  // a model that only hands on its inputs takes its time too
  }

  RunCost cost_;
  std::vector<StepRanges> steps_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<VirtualPlan>> MakeTimedPlan(const proto::Model& model,
                                                           std::vector<proto::TensorSpec> inputs,
                                                           const RunCost& cost) {
  std::vector<proto::TensorSpec> outputs;
  for (proto::TensorSpec output : model.outputs()) {
    const bool batch_known = !inputs.empty() && inputs[0].shape_size() > 0;
    if (proto::LeadingIsOpen(output) && batch_known) output.set_shape(0, inputs[0].shape(0));
    for (const std::int64_t dimension : output.shape()) {
      if (dimension >= 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("output ", FormatSpec(output),
                       ": timed compute needs every dimension but the first; serve this "
                       "model with `compute: real`"));
    }
    // Empty texts: zeros are their lengths.
    if (output.type() == proto::BYTES) {
      TROUPE_ASSIGN_OR_RETURN(
          const std::int64_t count,
          CountElements({output.shape().data(), static_cast<std::size_t>(output.shape_size())}));
      output.set_text_bytes(static_cast<std::uint64_t>(count) * kTextLength);
    }
    outputs.push_back(std::move(output));
  }
  return TimedPlan::Make(model, std::move(inputs), std::move(outputs), cost);
}

}  // namespace troupe::gpu
