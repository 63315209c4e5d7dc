// The half of the builder that turns a step into instructions: which entry, which layouts, which reorders,
// which views.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/engine/control_steps.hpp"
#include "gpu/engine/program_builder.hpp"
#include "gpu/ops/control_flow.hpp"
#include "gpu/ops/layout.hpp"
#include "gpu/ops/step_kernel.hpp"

namespace troupe::gpu {
namespace {

// More than a plan should have for one loop.
constexpr std::int64_t kMaxUnrolledSteps = 4096;

}  // namespace

absl::Status ProgramBuilder::AddControlStep(Work& work) {
  TROUPE_RETURN_IF_ERROR(CheckSubgraphs(work.context.step));
  if (depth_ == kMaxSubgraphDepth) {
    return absl::ResourceExhaustedError(
        absl::StrCat("its subgraphs lie more than ", kMaxSubgraphDepth, " deep in others"));
  }
  work.entry = FindControlFlow(work.context.step.op(), model_.opset());
  if (work.entry == nullptr) return work.context.Error("this operator is not supported");
  if (const proto::Subgraph* branch = KnownBranch(work.context, work.infos)) {
    TROUPE_ASSIGN_OR_RETURN(const std::vector<int> made, Inline(work, *branch, {}));
    return DefineOutputs(work, made);
  }
  const bool few = KnownTrips(work.context, work.infos, kMaxUnrolledSteps).has_value();
  if (maker_ && !infers_only_) {
    const auto names = names_;
    const int depth = depth_;
    if (few && Unroll(work).ok()) return absl::OkStatus();
    // Another device has a kernel for the whole step, or refuses it by its name.
    names_ = names;
    depth_ = depth;
    TROUPE_ASSIGN_OR_RETURN(work.outputs, InferControlStep(work.context, work.infos));
    TROUPE_ASSIGN_OR_RETURN(auto kernel, maker_(*work.entry, work.context, work.infos, work.outputs));
    return AddInstruction(work, std::move(kernel));
  }
  TROUPE_RETURN_IF_ERROR(ToRowMajor(work));
  auto made = MakeControlStep(work.context, work.infos,
                              [&](const proto::Subgraph& subgraph, std::span<const ValueInfo> inputs) {
                                return BuildSubgraph(work, subgraph, inputs);
                              });
  if (!made.ok()) return few && Unroll(work).ok() ? absl::OkStatus() : made.status();
  work.outputs = std::move(made->outputs);
  return AddInstruction(work, std::move(made->kernel));
}

// Adds the subgraph's steps. They see what they are given and their captures under their own names, and nothing else.
absl::StatusOr<std::vector<int>> ProgramBuilder::Inline(const Work& work, const proto::Subgraph& subgraph,
                                                        std::span<const int> given) {
  std::map<std::string, int, std::less<>> outer;
  std::swap(outer, names_);
  for (std::size_t i = 0; i < given.size(); ++i)
    TROUPE_RETURN_IF_ERROR(Define(subgraph.inputs(static_cast<int>(i)), given[i]));
  for (const proto::Subgraph::Capture& capture : subgraph.captures())
    TROUPE_RETURN_IF_ERROR(Define(capture.name(), work.inputs[capture.input()]));
  ++depth_;
  TROUPE_RETURN_IF_ERROR(AddInnerSteps(subgraph));
  --depth_;
  std::swap(outer, names_);
  std::vector<int> made;
  for (const std::string& output : subgraph.outputs()) {
    const auto found = outer.find(output);
    if (found == outer.end())
      return work.context.Error(absl::StrCat("has a subgraph whose output '", output, "' nothing makes"));
    made.push_back(found->second);
  }
  return made;
}

absl::Status ProgramBuilder::DefineOutputs(const Work& work, std::span<const int> ids) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (const std::string& name = work.context.step.outputs(static_cast<int>(i)); !name.empty())
      TROUPE_RETURN_IF_ERROR(Define(name, ids[i]));
  return absl::OkStatus();
}

// A Loop as the steps of its trips: for a device that has no loops, and for values that grow in each trip. Where it
// fails it leaves steps behind, so that the plan must fail too.
absl::Status ProgramBuilder::Unroll(const Work& work) {
  const proto::Subgraph& body = work.context.step.subgraphs(0);
  const LoopCounts counts = CountsOf(work.context.step);
  const std::int64_t trips = *KnownTrips(work.context, work.infos, kMaxUnrolledSteps);
  TROUPE_ASSIGN_OR_RETURN(const int on, AddConstant(proto::BOOL, {}, std::string(1, 1)));
  std::vector<int> given(work.inputs.begin(),
                         work.inputs.begin() + 2 + static_cast<std::ptrdiff_t>(counts.carried));
  given[1] = on;
  std::vector<std::vector<int>> parts(counts.gathered);
  for (std::int64_t trip = 0; trip < trips; ++trip) {
    TROUPE_ASSIGN_OR_RETURN(
        given[0],
        AddConstant(proto::INT64, {}, std::string(reinterpret_cast<const char*>(&trip), sizeof(trip))));
    TROUPE_ASSIGN_OR_RETURN(const std::vector<int> made, Inline(work, body, given));
    std::copy_n(made.begin() + 1, counts.carried, given.begin() + 2);
    for (std::size_t i = 0; i < counts.gathered; ++i) parts[i].push_back(made[1 + counts.carried + i]);
    const ValueInfo& goes_on = program_.values[static_cast<std::size_t>(made[0])].info;
    if (goes_on.constant == nullptr || goes_on.type != proto::BOOL || goes_on.elements() != 1)
      return absl::UnimplementedError("its condition is not known before the run");
    if (*goes_on.constant == std::byte{0}) break;
  }
  std::vector<int> outputs(given.begin() + 2, given.end());
  for (const std::vector<int>& one : parts) {
    TROUPE_ASSIGN_OR_RETURN(const int stacked, Stack(one));
    outputs.push_back(stacked);
  }
  return DefineOutputs(work, outputs);
}

// One tensor of tensors of one shape.
absl::StatusOr<int> ProgramBuilder::Stack(const std::vector<int>& parts) {
  const ValueInfo first = program_.values[static_cast<std::size_t>(parts[0])].info;
  Shape row = {1};
  row.insert(row.end(), first.shape.begin(), first.shape.end());
  std::map<std::string, int, std::less<>> outer;
  std::swap(outer, names_);
  TROUPE_ASSIGN_OR_RETURN(const int shape, AddConstant(proto::INT64, {static_cast<std::int64_t>(row.size())},
                                                       std::string(reinterpret_cast<const char*>(row.data()),
                                                                   row.size() * sizeof(row[0]))));
  TROUPE_RETURN_IF_ERROR(Define("shape", shape));
  proto::Step concat;
  concat.set_op("Concat");
  concat.add_outputs("stack");
  proto::Attribute& axis = *concat.add_attributes();
  axis.set_name("axis");
  axis.set_i(0);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ValueInfo& info = program_.values[static_cast<std::size_t>(parts[i])].info;
    if (info.bounded || info.shape != first.shape)
      return absl::InvalidArgumentError("its trips make parts of several shapes for one output");
    const std::string part = absl::StrCat("part", i), made = absl::StrCat("row", i);
    TROUPE_RETURN_IF_ERROR(Define(part, parts[i]));
    proto::Step reshape;
    reshape.set_op("Reshape");
    reshape.add_inputs(part);
    reshape.add_inputs("shape");
    reshape.add_outputs(made);
    TROUPE_RETURN_IF_ERROR(AddStep(reshape));
    concat.add_inputs(made);
  }
  TROUPE_RETURN_IF_ERROR(AddStep(concat));
  std::swap(outer, names_);
  return outer.at("stack");
}

absl::StatusOr<int> ProgramBuilder::AddConstant(proto::DataType type, Shape shape, const std::string& bytes) {
  const auto position = program_.constants.size();
  ValueInfo info;
  info.type = type;
  info.shape = std::move(shape);
  info.constant = KeepBytes(std::as_bytes(std::span(bytes)));
  return AddValue(std::move(info), Place::kConstant, position);
}

absl::Status ProgramBuilder::Emit(Work& work) {
  if (observer_) {
    std::vector<std::string> weights;
    for (const int id : work.inputs) weights.push_back(WeightOf(id));
    TROUPE_RETURN_IF_ERROR(observer_(work.context, *work.entry, work.infos, weights));
  }
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

bool ProgramBuilder::IsPacked(int id) const {
  const ProgramValue& value = program_.values[static_cast<std::size_t>(id)];
  return !value.info.layout.empty() && (value.place == Place::kWeights || value.place == Place::kInput);
}

std::unique_ptr<Kernel> ProgramBuilder::TryLayouts(Work& work) {
  bool laid_out = false;
  for (std::size_t i = 0; i < work.infos.size(); ++i) {
    if (work.infos[i].absent()) continue;
    if (work.infos[i].type != proto::FP32 || work.infos[i].bounded) return nullptr;
    if (IsPacked(work.inputs[i])) return nullptr;
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
    // A packed weight arrives as it is, at its operator or on the way to it in a subgraph.
    if (IsPacked(work.inputs[i]) && (work.entry->pack != nullptr || IsControlFlow(work.entry->name)))
      continue;
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
  if (IsPacked(id)) {
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

absl::StatusOr<std::string> ProgramBuilder::CopyOfInput(const std::string& output) {
  if (std::none_of(model_.inputs().begin(), model_.inputs().end(),
                   [&](const proto::TensorSpec& input) { return input.name() == output; }))
    return output;
  std::string name = absl::StrCat(output, "/output");
  while (names_.contains(name)) name += '/';
  proto::Step copy;
  copy.set_op("Identity");
  copy.set_name(output);
  copy.add_inputs(output);
  copy.add_outputs(name);
  TROUPE_RETURN_IF_ERROR(AddStep(copy));
  return name;
}

}  // namespace troupe::gpu
