#include "gpu/engine/program_builder.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/engine/control_steps.hpp"
#include "gpu/engine/model_inputs.hpp"
#include "gpu/engine/text_values.hpp"
#include "gpu/ops/control_flow.hpp"
#include "gpu/ops/layout.hpp"
#include "gpu/ops/step_kernel.hpp"
#include "gpu/ops/texts.hpp"

namespace troupe::gpu {
namespace {

// Folding is for shape arithmetic; whatever is larger is computed by the run (the importer folds constant
// weights).
constexpr std::uint64_t kMaxFoldedValue = 1 << 20;
constexpr std::uint64_t kMaxFolded = 16 << 20;
// A file says how often its loops nest, and each may be built several times.
constexpr std::uint64_t kMaxInnerSteps = 1 << 16;
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

class InferredKernel final : public Kernel {
 public:
  absl::Status Run(std::span<const TensorView>, std::span<TensorView>, std::byte*) const override {
    return absl::InternalError("a kernel that was made for its shapes only was run");
  }
};

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
    : model_(model),
      weights_(weights),
      budget_(std::make_shared<Budget>(Budget{kMaxFolded, kMaxInnerSteps})) {}

void ProgramBuilder::OnlyInfer() {
  infers_only_ = true;
  maker_ = [](const Operator&, const StepContext&, std::span<const ValueInfo>,
              std::span<const ValueInfo>) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    return std::make_unique<InferredKernel>();
  };
}

absl::StatusOr<Program> ProgramBuilder::Build(std::span<const proto::TensorSpec> inputs) {
  TROUPE_RETURN_IF_ERROR(CheckOperators(model_));
  TROUPE_RETURN_IF_ERROR(CheckWeights(model_, weights_));
  TROUPE_RETURN_IF_ERROR(CheckInputSpecs(model_, inputs));
  TROUPE_RETURN_IF_ERROR(AddInputs(inputs));
  TROUPE_RETURN_IF_ERROR(AddWeights());
  TROUPE_RETURN_IF_ERROR(ReadTextInputs(inputs));
  for (const proto::Step& step : model_.steps()) TROUPE_RETURN_IF_ERROR(AddStep(step));
  for (const proto::TensorSpec& output : model_.outputs()) {
    TROUPE_ASSIGN_OR_RETURN(const std::string value, CopyOfInput(output.name()));
    TROUPE_RETURN_IF_ERROR(AddOutput(value));
    program_.output_specs.back().set_name(output.name());
  }
  return std::move(program_);
}

absl::StatusOr<std::vector<ValueInfo>> ProgramBuilder::InferStep(const StepContext& context,
                                                                 std::span<const ValueInfo> in) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::string& name = context.step.inputs(static_cast<int>(i));
    if (name.empty() || names_.contains(name)) continue;
    TROUPE_ASSIGN_OR_RETURN(const int id, AddValue(in[i], Place::kInput, i));
    TROUPE_RETURN_IF_ERROR(Define(name, id));
  }
  TROUPE_RETURN_IF_ERROR(AddStep(context.step));
  std::vector<ValueInfo> out;
  for (const std::string& name : context.step.outputs()) {
    const auto found = names_.find(name);
    ValueInfo& info = out.emplace_back();
    if (found != names_.end()) info = program_.values[static_cast<std::size_t>(found->second)].info;
    info.constant = nullptr;  // it lives as long as this builder
  }
  return out;
}

absl::StatusOr<Program> ProgramBuilder::BuildSubgraph(const Work& work, const proto::Subgraph& subgraph,
                                                      std::span<const ValueInfo> inputs) {
  ProgramBuilder inner(model_, weights_);
  inner.observer_ = observer_;
  inner.maker_ = maker_;
  inner.infers_only_ = infers_only_;
  inner.budget_ = budget_;
  inner.depth_ = depth_ + 1;
  // The inputs that the step gives change from run to run, so that none of them is a weight of the model.
  inner.input_weights_.resize(static_cast<std::size_t>(subgraph.inputs_size()));
  for (const proto::Subgraph::Capture& capture : subgraph.captures())
    inner.input_weights_.push_back(WeightOf(work.inputs[capture.input()]));
  // The inputs are the first values, in their order: CpuPlan::RunSubgraph relies on it.
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TROUPE_ASSIGN_OR_RETURN(const int id, inner.AddValue(inputs[i], Place::kInput, i));
    const auto own = static_cast<std::size_t>(subgraph.inputs_size());
    TROUPE_RETURN_IF_ERROR(inner.Define(
        i < own ? subgraph.inputs(static_cast<int>(i)) : subgraph.captures(static_cast<int>(i - own)).name(),
        id));
  }
  TROUPE_RETURN_IF_ERROR(inner.AddInnerSteps(subgraph));
  for (const std::string& output : subgraph.outputs()) TROUPE_RETURN_IF_ERROR(inner.AddOutput(output));
  return std::move(inner.program_);
}

absl::Status ProgramBuilder::AddInnerSteps(const proto::Subgraph& subgraph) {
  for (const proto::Step& step : subgraph.steps()) {
    if (budget_->inner_steps == 0) {
      return absl::ResourceExhaustedError(absl::StrCat("its subgraphs take more than ", kMaxInnerSteps,
                                                       " steps to plan; loops inside loops may be planned "
                                                       "several times"));
    }
    --budget_->inner_steps;
    TROUPE_RETURN_IF_ERROR(AddStep(step));
  }
  return absl::OkStatus();
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
    if (info.type == proto::BYTES) {
      TROUPE_RETURN_IF_ERROR(AddValue(CollectedTexts(TextRoomOf(inputs[i])), Place::kInput, i).status());
      continue;
    }
    TROUPE_ASSIGN_OR_RETURN(const int id, AddValue(std::move(info), Place::kInput, i));
    TROUPE_RETURN_IF_ERROR(Define(model_.inputs(static_cast<int>(i)).name(), id));
  }
  return absl::OkStatus();
}

// Behind the weights, which are the values next to the inputs.
absl::Status ProgramBuilder::ReadTextInputs(std::span<const proto::TensorSpec> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].type() != proto::BYTES) continue;
    const std::string& name = model_.inputs(static_cast<int>(i)).name();
    if (maker_ && !infers_only_) return NoTextsThere(absl::StrCat("input '", name, "'"));
    ValueInfo info;
    info.type = proto::BYTES;
    info.shape = {inputs[i].shape().begin(), inputs[i].shape().end()};
    const std::uint64_t room = TextRoomOf(inputs[i]).count();
    info.texts = {room, room};
    TROUPE_ASSIGN_OR_RETURN(const int id, AddValue(std::move(info), Place::kActivation, 0));
    TROUPE_RETURN_IF_ERROR(Define(name, id));
    Instruction read;
    read.label = absl::StrCat("input '", name, "'");
    read.kernel = MakeTextReader();
    read.inputs = {static_cast<int>(i)};
    read.outputs = {id};
    program_.instructions.push_back(std::move(read));
  }
  return absl::OkStatus();
}

// A weight of texts is copied into the plan, which needs their addresses.
absl::Status ProgramBuilder::AddTextWeight(const proto::Weight& weight, ValueInfo info) {
  const std::span<const std::byte> bytes = weights_.subspan(weight.offset(), weight.length());
  const std::byte* const texts = KeepBytes(bytes);
  const std::size_t position = program_.constants.size();
  auto* const cells = reinterpret_cast<Text*>(
      program_.constants.emplace_back(static_cast<std::size_t>(info.elements()) * sizeof(Text)).data());
  TROUPE_RETURN_IF_ERROR(PointAtTexts({texts, bytes.size()}, info.elements(), cells));
  for (std::int64_t i = 0; i < info.elements(); ++i)
    info.texts.longest = std::max<std::uint64_t>(info.texts.longest, ReadText(cells[i]).size());
  info.texts.total = bytes.size();
  info.constant = reinterpret_cast<const std::byte*>(cells);
  TROUPE_ASSIGN_OR_RETURN(const int id, AddValue(std::move(info), Place::kConstant, position));
  return Define(weight.name(), id);
}

const std::byte* ProgramBuilder::KeepBytes(std::span<const std::byte> bytes) {
  std::byte* const kept = program_.constants.emplace_back(bytes.size()).data();
  if (!bytes.empty()) std::memcpy(kept, bytes.data(), bytes.size());
  return kept;
}

absl::Status ProgramBuilder::AddWeights() {
  for (const proto::Weight& weight : model_.weights()) {
    ValueInfo info;
    info.type = weight.type();
    info.shape = {weight.shape().begin(), weight.shape().end()};
    info.layout = weight.layout();
    if (info.type == proto::BYTES) {
      TROUPE_RETURN_IF_ERROR(AddTextWeight(weight, std::move(info)));
      continue;
    }
    if (info.layout.empty()) info.constant = weights_.data() + weight.offset();
    TROUPE_ASSIGN_OR_RETURN(const int id, AddValue(std::move(info), Place::kWeights, weight.offset()));
    TROUPE_RETURN_IF_ERROR(Define(weight.name(), id));
  }
  return absl::OkStatus();
}

// Weights are the values behind the model's inputs, and inputs the first values of a subgraph; views come later.
std::string ProgramBuilder::WeightOf(int id) const {
  if (id == kAbsent) return {};
  if (program_.values[static_cast<std::size_t>(id)].place == Place::kWeights) {
    const int weight = id - model_.inputs_size();
    return weight < model_.weights_size() ? model_.weights(weight).name() : std::string();
  }
  return static_cast<std::size_t>(id) < input_weights_.size() ? input_weights_[static_cast<std::size_t>(id)]
                                                              : std::string();
}

absl::Status ProgramBuilder::AddStep(const proto::Step& step) {
  Work work{.context = {step, model_.opset(), model_.precision()},
            .label = absl::StrCat(step.op(), " '", step.name(), "'")};
  TROUPE_RETURN_IF_ERROR(ReadInputs(work));
  absl::Status status;
  if (IsControlFlow(step.op())) {
    status = AddControlStep(work);
  } else {
    TROUPE_RETURN_IF_ERROR(InferOutputs(work));
    status = Foldable(work) ? Fold(work) : Emit(work);
    if (status.ok()) NoteLargest(work);
  }
  return status.ok() ? status : Named(status, work.label);
}

absl::Status ProgramBuilder::ReadInputs(Work& work) {
  for (const std::string& name : work.context.step.inputs()) {
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
  return absl::OkStatus();
}

absl::Status ProgramBuilder::InferOutputs(Work& work) {
  const proto::Step& step = work.context.step;
  work.entry = FindOperator(step.op(), model_.opset());
  if (work.entry == nullptr) return work.context.Error("this operator is not supported");
  auto outputs = InferShapes(work);
  if (!outputs.ok()) return Named(outputs.status(), work.label);
  work.outputs = *std::move(outputs);
  if (work.outputs.size() < static_cast<std::size_t>(step.outputs_size())) {
    return work.context.Error(
        absl::StrCat("has ", step.outputs_size(), " outputs, expected at most ", work.outputs.size()));
  }
  for (ValueInfo& output : work.outputs) {
    if (const auto count = CountElements(output.shape); !count.ok()) return Named(count.status(), work.label);
    if (output.type == proto::BYTES && maker_ && !infers_only_) return NoTextsThere(work.label);
    output.layout.clear();
    output.constant = nullptr;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ValueInfo>> ProgramBuilder::InferShapes(const Work& work) const {
  if (const auto known = largest_.ForShapes(work.context, work.inputs, work.infos)) {
    auto outputs = gpu::InferStep(*work.entry, work.context, *known);
    for (std::size_t i = 0; outputs.ok() && i < outputs->size(); ++i) (*outputs)[i].bounded = true;
    if (outputs.ok()) return outputs;
  }
  return gpu::InferStep(*work.entry, work.context, work.infos);
}

void ProgramBuilder::NoteLargest(const Work& work) {
  if (work.context.step.outputs_size() != 1) return;
  const auto made = names_.find(work.context.step.outputs(0));
  if (made == names_.end()) return;
  const ValueInfo info = program_.values[static_cast<std::size_t>(made->second)].info;
  largest_.Note(*work.entry, work.context, work.inputs, work.infos, info, made->second);
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
    const auto size = ValueBytes(output);
    if (!size.ok()) return false;
    bytes += size->count();
  }
  return bytes <= kMaxFoldedValue && bytes <= budget_->folded_bytes;
}

absl::Status ProgramBuilder::Fold(const Work& work) {
  TROUPE_ASSIGN_OR_RETURN(const auto kernel, work.entry->make(work.context, work.infos, work.outputs));
  const auto inputs = ViewsOf(work.infos);
  auto outputs = ViewsOf(work.outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (work.outputs[i].absent()) continue;
    TROUPE_ASSIGN_OR_RETURN(const Bytes size, ValueBytes(work.outputs[i]));
    budget_->folded_bytes -= std::min<std::uint64_t>(budget_->folded_bytes, size.count());
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

// The output as a launch gives it: its texts, one after the other.
absl::StatusOr<int> ProgramBuilder::CollectTexts(int elements, proto::TensorSpec& spec) {
  const std::string label = absl::StrCat("output '", spec.name(), "'");
  if (depth_ > 0)
    return absl::UnimplementedError(
        absl::StrCat(label,
                     " of a subgraph has texts (BYTES), which If, Loop and Scan do "
                     "not hand on; make them outside of the subgraph"));
  TROUPE_ASSIGN_OR_RETURN(const Bytes room,
                          RoomOfOutput(label, program_.values[static_cast<std::size_t>(elements)].info));
  spec.set_text_bytes(room.count());
  TROUPE_ASSIGN_OR_RETURN(const int id, AddValue(CollectedTexts(room), Place::kActivation, 0));
  Instruction collect;
  collect.label = label;
  collect.kernel = MakeTextCollector(room);
  collect.inputs = {elements};
  collect.outputs = {id};
  program_.instructions.push_back(std::move(collect));
  return id;
}

absl::Status ProgramBuilder::AddOutput(const std::string& name) {
  const auto found = names_.find(name);
  if (found == names_.end())
    return absl::InvalidArgumentError(absl::StrCat("output '", name, "' is produced by no step"));
  TROUPE_ASSIGN_OR_RETURN(int id, InLayout(found->second, {}));
  const ValueInfo info = program_.values[static_cast<std::size_t>(id)].info;
  proto::TensorSpec spec;
  spec.set_name(name);
  spec.set_type(info.type);
  for (std::int64_t dim : info.shape) spec.add_shape(dim);
  program_.output_texts.push_back(info.type == proto::BYTES ? id : kAbsent);
  if (info.type == proto::BYTES) {
    TROUPE_ASSIGN_OR_RETURN(id, CollectTexts(id, spec));
  }
  program_.outputs.push_back(id);
  program_.output_specs.push_back(std::move(spec));
  return absl::OkStatus();
}

}  // namespace troupe::gpu
