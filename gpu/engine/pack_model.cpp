// Packing: each weight that exactly one step reads, at a place whose operator packs, changes to the layout it
// wants.
#include <array>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "gpu/engine/plan.hpp"
#include "gpu/engine/program_builder.hpp"
#include "gpu/engine/threads.hpp"
#include "gpu/ops/control_flow.hpp"
#include "gpu/ops/layout.hpp"
#include "proto/pack_target.hpp"

namespace troupe::gpu {
namespace {

using Uses = std::map<std::string, int, std::less<>>;

Uses CountUses(const google::protobuf::RepeatedPtrField<proto::Step>& steps);

// What a step with subgraphs reads of a value: the operator itself, and every step inside. The inputs behind the operator's
// own are there for the steps inside.
void CountInside(const proto::Step& step, Uses& uses) {
  const std::size_t own = OwnInputs(step);
  for (int i = 0; i < step.inputs_size() && static_cast<std::size_t>(i) < own; ++i) ++uses[step.inputs(i)];
  for (const proto::Subgraph& subgraph : step.subgraphs()) {
    Uses inside = CountUses(subgraph.steps());
    for (const std::string& output : subgraph.outputs()) ++inside[output];
    for (const proto::Subgraph::Capture& capture : subgraph.captures())
      if (capture.input() < static_cast<std::size_t>(step.inputs_size()))
        uses[step.inputs(static_cast<int>(capture.input()))] += inside[capture.name()];
  }
}

// How often each value is read, as a step's input.
Uses CountUses(const google::protobuf::RepeatedPtrField<proto::Step>& steps) {
  Uses uses;
  for (const proto::Step& step : steps) {
    if (step.subgraphs_size() > 0) {
      CountInside(step, uses);
      continue;
    }
    for (const std::string& name : step.inputs()) ++uses[name];
  }
  return uses;
}

// Writes each weight once, when the first step reads it: as the canonical model has it, or packed.
class PackWriter {
 public:
  PackWriter(const proto::Model& model, std::span<const std::byte> weights, WeightsOutput* output)
      : weights_(weights), output_(output) {
    result_.model = model;
    if (output_ == nullptr) result_.weights.reserve(weights.size());
    for (proto::Weight& weight : *result_.model.mutable_weights()) missing_.emplace(weight.name(), &weight);
  }

  absl::Status Step(const StepContext& ctx, const Operator& entry, std::span<const ValueInfo> in,
                    const std::vector<std::string>& names, const Uses& uses) {
    for (int i = 0; i < ctx.step.inputs_size(); ++i) {
      const auto weight = missing_.find(names[static_cast<std::size_t>(i)]);
      if (weight == missing_.end()) continue;
      const bool packs = entry.pack != nullptr && uses.at(weight->first) == 1 &&
                         in[static_cast<std::size_t>(i)].constant != nullptr;
      PackedWeight packed;
      if (packs) {
        TROUPE_ASSIGN_OR_RETURN(packed, entry.pack(ctx, in, i));
      }
      TROUPE_RETURN_IF_ERROR(Write(*weight->second, packed));
      missing_.erase(weight);
    }
    return absl::OkStatus();
  }

  // The model; with it the weights that no step was seen to read.
  absl::StatusOr<PackedModel> Finish() {
    for (proto::Weight& weight : *result_.model.mutable_weights())
      if (missing_.erase(weight.name()) > 0) TROUPE_RETURN_IF_ERROR(Write(weight, {}));
    result_.model.set_weights_bytes(size_);
    result_.model.set_packed_for(PackTarget());
    if (result_.model.precision() == proto::PRECISION_BF16 && ComputesBf16())
      result_.model.mutable_packed_for()->append(proto::kPackedInBf16);
    result_.model.set_weights_digest(digest_.Finish());
    return std::move(result_);
  }

 private:
  absl::Status Write(proto::Weight& weight, const PackedWeight& packed) {
    constexpr std::array<std::byte, kWeightAlignment.count()> kZeros{};
    std::span<const std::byte> bytes = weights_.subspan(weight.offset(), weight.length());
    if (!packed.layout.empty()) {
      bytes = packed.data;
      weight.set_layout(packed.layout);
      weight.set_length(bytes.size());
    }
    weight.set_offset(size_);
    TROUPE_RETURN_IF_ERROR(Append(bytes));
    return Append(std::span(kZeros).first(AlignUp(Bytes(size_), kWeightAlignment).count() - size_));
  }

  absl::Status Append(std::span<const std::byte> bytes) {
    size_ += bytes.size();
    digest_.Update(bytes);
    if (output_ != nullptr) return output_->Append(bytes);
    result_.weights.insert(result_.weights.end(), bytes.begin(), bytes.end());
    return absl::OkStatus();
  }

  const std::span<const std::byte> weights_;
  WeightsOutput* const output_;
  PackedModel result_;
  std::map<std::string, proto::Weight*, std::less<>> missing_;  // not written yet, by name
  std::uint64_t size_ = 0;
  Sha256 digest_;
};

}  // namespace

std::string PackTarget() {
  return DeviceTarget();
}

absl::Status FitsInputs(const proto::Model& model, std::span<const std::byte> weights,
                        std::span<const proto::TensorSpec> inputs) {
  ProgramBuilder builder(model, weights);
  builder.OnlyInfer();
  return builder.Build(inputs).status();
}

absl::StatusOr<PackedModel> PackModel(const proto::Model& model, std::span<const std::byte> weights,
                                      std::span<const proto::TensorSpec> inputs, WeightsOutput* output) {
  if (!model.packed_for().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the model is packed already, for ", model.packed_for()));
  }
  Uses uses = CountUses(model.steps());
  for (const proto::TensorSpec& value : model.outputs()) ++uses[value.name()];
  const ThreadsScope scope(1);  // layouts must not depend on how many cores packed them
  PackWriter writer(model, weights, output);
  ProgramBuilder builder(model, weights);
  builder.Observe(
      [&](const StepContext& ctx, const Operator& entry, std::span<const ValueInfo> in,
          const std::vector<std::string>& names) { return writer.Step(ctx, entry, in, names, uses); });
  TROUPE_RETURN_IF_ERROR(builder.Build(inputs).status());
  return writer.Finish();
}

}  // namespace troupe::gpu
