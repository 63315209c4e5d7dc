// Packing: each weight that exactly one step reads, at a place whose operator packs, changes to the layout it
// wants.
#include <cstring>
#include <map>
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

namespace troupe::gpu {
namespace {

using Packed = std::map<std::string, PackedWeight, std::less<>>;

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

absl::Status PackInputs(const StepContext& ctx, const Operator& entry, std::span<const ValueInfo> in,
                        const std::vector<std::string>& weights, const Uses& uses, Packed& packed) {
  if (entry.pack == nullptr) return absl::OkStatus();
  for (int i = 0; i < ctx.step.inputs_size(); ++i) {
    const std::string& name = weights[static_cast<std::size_t>(i)];
    if (name.empty() || packed.contains(name) || uses.at(name) != 1 ||
        in[static_cast<std::size_t>(i)].constant == nullptr)
      continue;
    TROUPE_ASSIGN_OR_RETURN(PackedWeight weight, entry.pack(ctx, in, i));
    if (!weight.layout.empty()) packed.emplace(name, std::move(weight));
  }
  return absl::OkStatus();
}

// The blob in the order of the canonical model, with packed weights in place of theirs.
PackedModel Assemble(const proto::Model& model, std::span<const std::byte> weights, Packed packed) {
  PackedModel result;
  result.model = model;
  std::uint64_t size = 0;
  for (proto::Weight& weight : *result.model.mutable_weights()) {
    if (const auto found = packed.find(weight.name()); found != packed.end()) {
      weight.set_layout(found->second.layout);
      weight.set_length(found->second.data.size());
    }
    weight.set_offset(size);
    size = AlignUp(Bytes(size + weight.length()), kWeightAlignment).count();
  }
  result.weights.resize(size);
  for (int i = 0; i < model.weights_size(); ++i) {
    const proto::Weight& weight = result.model.weights(i);
    const auto found = packed.find(weight.name());
    const std::byte* from =
        found != packed.end() ? found->second.data.data() : weights.data() + model.weights(i).offset();
    if (weight.length() > 0) std::memcpy(result.weights.data() + weight.offset(), from, weight.length());
    if (found != packed.end()) packed.erase(found);
  }
  result.model.set_weights_bytes(size);
  result.model.set_packed_for(PackTarget());
  Sha256 digest;
  digest.Update(result.weights);
  result.model.set_weights_digest(digest.Finish());
  return result;
}

}  // namespace

std::string PackTarget() {
  return DeviceTarget();
}

absl::StatusOr<PackedModel> PackModel(const proto::Model& model, std::span<const std::byte> weights,
                                      std::span<const proto::TensorSpec> inputs) {
  if (!model.packed_for().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the model is packed already, for ", model.packed_for()));
  }
  Uses uses = CountUses(model.steps());
  for (const proto::TensorSpec& output : model.outputs()) ++uses[output.name()];
  Packed packed;
  const ThreadsScope scope(1);  // layouts must not depend on how many cores packed them
  ProgramBuilder builder(model, weights);
  builder.Observe(
      [&](const StepContext& ctx, const Operator& entry, std::span<const ValueInfo> in,
          const std::vector<std::string>& names) { return PackInputs(ctx, entry, in, names, uses, packed); });
  TROUPE_RETURN_IF_ERROR(builder.Build(inputs).status());
  return Assemble(model, weights, std::move(packed));
}

}  // namespace troupe::gpu
