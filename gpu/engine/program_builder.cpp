#include "gpu/engine/program_builder.hpp"

#include <algorithm>
#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/engine/model_inputs.hpp"
#include "gpu/ops/layout.hpp"
#include "gpu/ops/step_kernel.hpp"

namespace troupe::gpu {
namespace {

// Folding is for shape arithmetic; whatever is larger is computed by the run (the importer folds constant
// weights).
constexpr std::uint64_t kMaxFoldedValue = 1 << 20;
constexpr std::uint64_t kMaxFolded = 16 << 20;
constexpr std::size_t kAlignment = 64;

// Operators that read the shape of their input and never its elements.
bool ReadsOnlyShapes(const std::string& op) {
  return op == "Shape" || op == "Size";
}

absl::Status Named(const absl::Status& status, const std::string& label) {
  const std::string message(status.message());
  if (absl::StartsWith(message, label)) return status;
  return absl::Status(status.code(), absl::StrCat(label, ": ", message));
}

// Memory for one kernel's run at build time.
std::vector<TensorView> ViewsOf(std::span<const ValueInfo> infos) {
  std::vector<TensorView> views;
  for (const ValueInfo& info : infos) {
    views.push_back(
        {info.type, info.shape, const_cast<std::byte*>(info.constant)});  // kernels do not write inputs
  }
  return views;
}

}  // namespace

AlignedBytes::AlignedBytes(std::size_t size)
    : data_(static_cast<std::byte*>(
          ::operator new[](std::max<std::size_t>(size, 1), std::align_val_t(kAlignment)))) {}

void AlignedBytes::Free::operator()(std::byte* data) const {
  ::operator delete[](data, std::align_val_t(kAlignment));
}

ProgramBuilder::ProgramBuilder(const proto::Model& model, std::span<const std::byte> weights)
    : model_(model), weights_(weights) {}

absl::StatusOr<Program> ProgramBuilder::Build(std::span<const proto::TensorSpec> inputs) {
  TROUPE_RETURN_IF_ERROR(CheckOperators(model_));
  TROUPE_RETURN_IF_ERROR(CheckWeights(model_, weights_));
  TROUPE_RETURN_IF_ERROR(CheckInputSpecs(model_, inputs));
  TROUPE_RETURN_IF_ERROR(AddInputs(inputs));
  TROUPE_RETURN_IF_ERROR(AddWeights());
  for (const proto::Step& step : model_.steps()) TROUPE_RETURN_IF_ERROR(AddStep(step));
  TROUPE_RETURN_IF_ERROR(AddOutputs());
  return std::move(program_);
}

absl::Status ProgramBuilder::Define(const std::string& name, int id) {
  if (names_.emplace(name, id).second) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("value '", name, "' is produced twice"));
}

absl::StatusOr<int> ProgramBuilder::AddValue(ValueInfo info, Place place, std::uint64_t position) {
  TROUPE_ASSIGN_OR_RETURN(const Bytes size, ValueBytes(info));
  const int id = static_cast<int>(program_.values.size());
  program_.values.push_back({std::move(info), size, place, position, id});
  return id;
}

absl::Status ProgramBuilder::AddInputs(std::span<const proto::TensorSpec> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ValueInfo info;
    info.type = inputs[i].type();
    info.shape = {inputs[i].shape().begin(), inputs[i].shape().end()};
    TROUPE_ASSIGN_OR_RETURN(const int id, AddValue(std::move(info), Place::kInput, i));
    TROUPE_RETURN_IF_ERROR(Define(model_.inputs(static_cast<int>(i)).name(), id));
  }
  return absl::OkStatus();
}

absl::Status ProgramBuilder::AddWeights() {
  for (const proto::Weight& weight : model_.weights()) {
    ValueInfo info;
    info.type = weight.type();
    info.shape = {weight.shape().begin(), weight.shape().end()};
    info.layout = weight.layout();
    if (info.layout.empty()) info.constant = weights_.data() + weight.offset();
    TROUPE_ASSIGN_OR_RETURN(const int id, AddValue(std::move(info), Place::kWeights, weight.offset()));
    TROUPE_RETURN_IF_ERROR(Define(weight.name(), id));
  }
  return absl::OkStatus();
}

absl::Status ProgramBuilder::AddStep(const proto::Step& step) {
  Work work{.context = {step, model_.opset()}, .label = absl::StrCat(step.op(), " '", step.name(), "'")};
  TROUPE_RETURN_IF_ERROR(ReadStep(work));
  const absl::Status status = Foldable(work) ? Fold(work) : Emit(work);
  return status.ok() ? status : Named(status, work.label);
}

absl::Status ProgramBuilder::ReadStep(Work& work) {
  const proto::Step& step = work.context.step;
  for (const std::string& name : step.inputs()) {
    if (name.empty()) {
      work.inputs.push_back(kAbsent);
      work.infos.emplace_back();
      continue;
    }
    const auto found = names_.find(name);
    if (found == names_.end()) {
      return work.context.Error(
          absl::StrCat("reads '", name, "', which no input, weight or earlier step produces"));
    }
    work.inputs.push_back(found->second);
    work.infos.push_back(program_.values[static_cast<std::size_t>(found->second)].info);
  }
  work.entry = FindOperator(step.op(), model_.opset());
  auto outputs = InferStep(*work.entry, work.context, work.infos);
  if (!outputs.ok()) return Named(outputs.status(), work.label);
  work.outputs = *std::move(outputs);
  if (work.outputs.size() < static_cast<std::size_t>(step.outputs_size())) {
    return work.context.Error(
        absl::StrCat("has ", step.outputs_size(), " outputs, expected at most ", work.outputs.size()));
  }
  for (ValueInfo& output : work.outputs) {
    if (const auto count = CountElements(output.shape); !count.ok()) return Named(count.status(), work.label);
    if (!output.absent() && ElementSize(output.type) == 0)
      return work.context.Error("makes strings, which no kernel does");
    output.layout.clear();
    output.constant = nullptr;
  }
  return absl::OkStatus();
}

bool ProgramBuilder::Foldable(const Work& work) const {
  const bool shapes = ReadsOnlyShapes(work.context.step.op());
  for (const ValueInfo& info : work.infos) {
    if (info.absent()) continue;
    if (info.bounded || (!shapes && info.constant == nullptr)) return false;
  }
  std::uint64_t bytes = 0;
  for (const ValueInfo& output : work.outputs) {
    if (output.bounded) return false;
    bytes += static_cast<std::uint64_t>(output.elements()) * ElementSize(output.type);
  }
  return bytes <= kMaxFoldedValue && folded_bytes_ + bytes <= kMaxFolded;
}

absl::Status ProgramBuilder::Fold(const Work& work) {
  TROUPE_ASSIGN_OR_RETURN(const auto kernel, work.entry->make(work.context, work.infos, work.outputs));
  const auto inputs = ViewsOf(work.infos);
  auto outputs = ViewsOf(work.outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (work.outputs[i].absent()) continue;
    TROUPE_ASSIGN_OR_RETURN(const Bytes size, ValueBytes(work.outputs[i]));
    folded_bytes_ += size.count();
    const auto position = program_.constants.size();
    outputs[i].data = program_.constants.emplace_back(size.count()).data();
    if (i >= static_cast<std::size_t>(work.context.step.outputs_size())) continue;
    ValueInfo info = work.outputs[i];
    info.constant = outputs[i].data;
    TROUPE_ASSIGN_OR_RETURN(const int id, AddValue(std::move(info), Place::kConstant, position));
    const std::string& name = work.context.step.outputs(static_cast<int>(i));
    if (!name.empty()) TROUPE_RETURN_IF_ERROR(Define(name, id));
  }
  AlignedBytes scratch(kernel->scratch().count());
  return kernel->Run(inputs, outputs, scratch.data());
}

absl::Status ProgramBuilder::AddOutputs() {
  for (const proto::TensorSpec& declared : model_.outputs()) {
    const auto found = names_.find(declared.name());
    if (found == names_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("output '", declared.name(), "' is produced by no step"));
    }
    TROUPE_ASSIGN_OR_RETURN(const int id, InLayout(found->second, {}));
    const ValueInfo& info = program_.values[static_cast<std::size_t>(id)].info;
    proto::TensorSpec spec;
    spec.set_name(declared.name());
    spec.set_type(info.type);
    for (std::int64_t dim : info.shape) spec.add_shape(dim);
    program_.outputs.push_back(id);
    program_.output_specs.push_back(std::move(spec));
  }
  return absl::OkStatus();
}

}  // namespace troupe::gpu
