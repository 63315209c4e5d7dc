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
#include "gpu/ops/layout.hpp"

namespace troupe::gpu {
namespace {

using Packed = std::map<std::string, PackedWeight, std::less<>>;

// How often each value is read, as a step's input or as a model output.
std::map<std::string, int, std::less<>> CountUses(const proto::Model& model) {
  std::map<std::string, int, std::less<>> uses;
  for (const proto::Step& step : model.steps()) {
    for (const std::string& name : step.inputs()) ++uses[name];
  }
  for (const proto::TensorSpec& output : model.outputs()) ++uses[output.name()];
  return uses;
}

absl::Status PackInputs(const StepContext& ctx, const Operator& entry, std::span<const ValueInfo> in,
                        const std::map<std::string, int, std::less<>>& uses,
                        const std::map<std::string, int, std::less<>>& weights, Packed& packed) {
  if (entry.pack == nullptr) return absl::OkStatus();
  for (int i = 0; i < ctx.step.inputs_size(); ++i) {
    const std::string& name = ctx.step.inputs(i);
    if (!weights.contains(name) || uses.at(name) != 1 || in[static_cast<std::size_t>(i)].constant == nullptr)
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
  const auto uses = CountUses(model);
  std::map<std::string, int, std::less<>> names;
  for (const proto::Weight& weight : model.weights()) names[weight.name()] = 1;
  Packed packed;
  const ThreadsScope scope(1);  // layouts must not depend on how many cores packed them
  ProgramBuilder builder(model, weights);
  builder.Observe([&](const StepContext& ctx, const Operator& entry, std::span<const ValueInfo> in) {
    return PackInputs(ctx, entry, in, uses, names, packed);
  });
  TROUPE_RETURN_IF_ERROR(builder.Build(inputs).status());
  return Assemble(model, weights, std::move(packed));
}

}  // namespace troupe::gpu
