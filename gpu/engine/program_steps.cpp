// The half of the builder that turns a step into instructions: which entry, which layouts, which reorders,
// which views.
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/engine/program_builder.hpp"
#include "gpu/ops/layout.hpp"
#include "gpu/ops/step_kernel.hpp"

namespace troupe::gpu {

absl::Status ProgramBuilder::Emit(Work& work) {
  if (observer_) TROUPE_RETURN_IF_ERROR(observer_(work.context, *work.entry, work.infos));
  if (maker_) {
    TROUPE_ASSIGN_OR_RETURN(auto kernel, maker_(*work.entry, work.context, work.infos, work.outputs));
    return AddInstruction(work, std::move(kernel));
  }
  if (!work.entry->any_layout) {
    if (auto kernel = TryLayouts(work)) return AddInstruction(work, std::move(kernel));
    TROUPE_RETURN_IF_ERROR(ToRowMajor(work));
  }
  TROUPE_ASSIGN_OR_RETURN(auto kernel, MakeStepKernel(*work.entry, work.context, work.infos, work.outputs));
  if (work.entry->any_layout) TROUPE_RETURN_IF_ERROR(ToWanted(work, *kernel));
  return AddInstruction(work, std::move(kernel));
}

std::unique_ptr<Kernel> ProgramBuilder::TryLayouts(Work& work) {
  bool laid_out = false;
  for (std::size_t i = 0; i < work.infos.size(); ++i) {
    if (work.infos[i].absent()) continue;
    if (work.infos[i].type != proto::FP32 || work.infos[i].bounded) return nullptr;
    const bool weight = program_.values[static_cast<std::size_t>(work.inputs[i])].place == Place::kWeights;
    if (!work.infos[i].layout.empty() && weight) return nullptr;
    laid_out = laid_out || !work.infos[i].layout.empty();
  }
  const Operator* entry = laid_out ? FindLayoutOperator(work.context.step.op()) : nullptr;
  if (entry == nullptr) return nullptr;
  auto kernel = entry->make(work.context, work.infos, work.outputs);
  if (!kernel.ok() || !ToWanted(work, **kernel).ok()) return nullptr;
  work.entry = entry;
  return *std::move(kernel);
}

absl::Status ProgramBuilder::ToRowMajor(Work& work) {
  for (std::size_t i = 0; i < work.inputs.size(); ++i) {
    if (work.inputs[i] == kAbsent) continue;
    const bool weight = program_.values[static_cast<std::size_t>(work.inputs[i])].place == Place::kWeights;
    if (weight && work.entry->pack != nullptr) continue;  // arrives as it is packed
    TROUPE_ASSIGN_OR_RETURN(work.inputs[i], InLayout(work.inputs[i], {}));
    work.infos[i] = program_.values[static_cast<std::size_t>(work.inputs[i])].info;
  }
  return absl::OkStatus();
}

absl::Status ProgramBuilder::ToWanted(Work& work, const Kernel& kernel) {
  if (work.outputs[0].elements() == 0) return absl::OkStatus();  // reads nothing
  for (std::size_t i = 0; i < work.inputs.size(); ++i) {
    if (work.inputs[i] == kAbsent) continue;
    TROUPE_ASSIGN_OR_RETURN(work.inputs[i], InLayout(work.inputs[i], kernel.input_layout(i)));
    work.infos[i] = program_.values[static_cast<std::size_t>(work.inputs[i])].info;
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ProgramBuilder::InLayout(int id, const std::string& layout) {
  const ProgramValue& value = program_.values[static_cast<std::size_t>(id)];
  if (value.info.layout == layout) return id;
  if (value.place == Place::kWeights && !value.info.layout.empty()) {
    return absl::InvalidArgumentError("reads a packed weight whose layout is not the one it takes");
  }
  if (const auto found = reordered_.find({id, layout}); found != reordered_.end()) return found->second;
  ValueInfo info = value.info;
  info.constant = nullptr;
  Instruction instruction;
  instruction.label = "Reorder";
  TROUPE_ASSIGN_OR_RETURN(instruction.kernel, MakeReorder(info.shape, info.layout, layout));
  info.layout = layout;
  TROUPE_ASSIGN_OR_RETURN(const int copy, AddValue(std::move(info), Place::kActivation, 0));
  instruction.inputs = {id};
  instruction.outputs = {copy};
  program_.instructions.push_back(std::move(instruction));
  reordered_[{id, layout}] = copy;
  return copy;
}

// A view shares its input's bytes and needs no instruction; its own shape is known, so its input's must be
// too.
absl::StatusOr<bool> ProgramBuilder::AddView(const Work& work, const Kernel& kernel) {
  const int viewed = kernel.view_of_input();
  if (viewed < 0 || work.context.step.outputs_size() != 1) return false;
  const ProgramValue source =
      program_.values[static_cast<std::size_t>(work.inputs[static_cast<std::size_t>(viewed)])];
  if (source.info.bounded || work.outputs[0].bounded || source.info.type != work.outputs[0].type)
    return false;
  ValueInfo info = work.outputs[0];
  if (work.entry->any_layout) info.layout = kernel.output_layout(0);
  TROUPE_ASSIGN_OR_RETURN(const Bytes size, ValueBytes(info));
  if (size != source.size) return false;
  info.constant = source.info.constant;
  TROUPE_ASSIGN_OR_RETURN(const int id, AddValue(std::move(info), source.place, source.position));
  program_.values.back().root = source.root;
  TROUPE_RETURN_IF_ERROR(Define(work.context.step.outputs(0), id));
  return true;
}

absl::Status ProgramBuilder::AddInstruction(Work& work, std::unique_ptr<Kernel> kernel) {
  TROUPE_ASSIGN_OR_RETURN(const bool viewed, AddView(work, *kernel));
  if (viewed) return absl::OkStatus();
  Instruction instruction;
  instruction.label = work.label;
  instruction.inputs = work.inputs;
  for (std::size_t i = 0; i < work.outputs.size(); ++i) {
    ValueInfo info = work.outputs[i];
    const bool named = i < static_cast<std::size_t>(work.context.step.outputs_size());
    if (info.absent()) {
      instruction.outputs.push_back(kAbsent);
      continue;
    }
    if (work.entry->any_layout) info.layout = kernel->output_layout(i);
    // An unused output is written all the same: its memory lives for this instruction only.
    TROUPE_ASSIGN_OR_RETURN(const int id, AddValue(std::move(info), Place::kActivation, 0));
    instruction.outputs.push_back(id);
    const std::string name = named ? work.context.step.outputs(static_cast<int>(i)) : std::string();
    if (!name.empty()) TROUPE_RETURN_IF_ERROR(Define(name, id));
  }
  instruction.kernel = std::move(kernel);
  program_.instructions.push_back(std::move(instruction));
  return absl::OkStatus();
}

}  // namespace troupe::gpu
