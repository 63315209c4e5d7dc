#include "gpu/engine/cpu_plan.hpp"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/engine/program_builder.hpp"
#include "gpu/engine/threads.hpp"

namespace troupe::gpu {
namespace {

constexpr int kMaxThreads = 1024;

std::size_t Index(int id) {
  return static_cast<std::size_t>(id);
}

bool Aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 64 == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> Plan::Build(const proto::Model& model,
                                                  std::span<const std::byte> weights,
                                                  std::span<const proto::TensorSpec> inputs, int threads) {
  if (threads < 1 || threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("a plan for ", threads, " threads; expected 1 to ", kMaxThreads));
  }
  const ThreadsScope scope(threads);
  ProgramBuilder builder(model, weights);
  TROUPE_ASSIGN_OR_RETURN(Program program, builder.Build(inputs));
  program.threads = threads;
  LayOut(program);
  return std::make_unique<CpuPlan>(std::move(program));
}

CpuPlan::CpuPlan(Program program) : program_(std::move(program)), steps_(program_.instructions.size()) {
  for (std::size_t id = 0; id < program_.values.size(); ++id) {
    ProgramValue& value = program_.values[id];
    value.info.constant = nullptr;  // pointed into the weights of Build, which may move
    // Of a whole model: an input whose size only the run knows is one of texts.
    if (value.place == Place::kInput && value.info.bounded) text_inputs_.push_back(id);
  }
  for (std::size_t i = 0; i < steps_.size(); ++i) PrepareStep(program_.instructions[i], steps_[i]);
}

void CpuPlan::PrepareStep(const Instruction& instruction, Step& step) const {
  const auto view = [&](int id, std::vector<TensorView>& views) {
    if (id == kAbsent) {
      views.emplace_back();
      return;
    }
    const ProgramValue& value = program_.values[Index(id)];
    step.shapes_vary = step.shapes_vary || value.info.bounded;
    views.push_back({value.info.type, value.info.shape, nullptr});
  };
  for (int id : instruction.inputs) view(id, step.in);
  for (int id : instruction.outputs) view(id, step.out);
  auto& ranges = step.weights.ranges;
  for (int id : instruction.inputs) {
    if (id == kAbsent || program_.values[Index(id)].place != Place::kWeights) continue;
    ranges.emplace_back(program_.values[Index(id)].position, program_.values[Index(id)].size.count());
  }
  std::ranges::sort(ranges);
  ranges.erase(std::unique(ranges.begin(), ranges.end()), ranges.end());
}

Bytes CpuPlan::output_bytes(std::size_t i) const {
  TROUPE_CHECK(i < program_.outputs.size(), "no such output");
  return program_.values[Index(program_.outputs[i])].size;
}

absl::Status CpuPlan::CheckTextInputs(const PlanBindings& bindings) const {
  for (const std::size_t id : text_inputs_) {
    const ProgramValue& value = program_.values[id];
    if (value.position >= bindings.input_bytes.size())
      return absl::InvalidArgumentError("an input of texts (BYTES) was bound without its size");
    if (bindings.input_bytes[value.position] > value.size)
      return absl::InvalidArgumentError(absl::StrCat("an input of texts was bound with ",
                                                     bindings.input_bytes[value.position].count(),
                                                     " bytes, the plan has room for ", value.size.count()));
  }
  return absl::OkStatus();
}

absl::Status CpuPlan::CheckBindings(const PlanBindings& bindings) const {
  if (!Aligned(bindings.weights) || !Aligned(bindings.activations)) {
    return absl::InvalidArgumentError("weights and activations must be 64-byte aligned");
  }
  if (bindings.activations == nullptr && program_.activation_bytes > Bytes(0)) {
    return absl::InvalidArgumentError("no activation memory was bound");
  }
  if (bindings.outputs.size() != program_.outputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(bindings.outputs.size(), " outputs were bound, the plan has ", program_.outputs.size()));
  }
  for (const ProgramValue& value : program_.values) {
    if (value.place == Place::kWeights && bindings.weights == nullptr && bindings.places.empty()) {
      return absl::InvalidArgumentError("no weights were bound");
    }
    if (value.place == Place::kInput && value.position >= bindings.inputs.size()) {
      return absl::InvalidArgumentError(absl::StrCat(bindings.inputs.size(), " inputs were bound, too few"));
    }
  }
  TROUPE_RETURN_IF_ERROR(CheckTextInputs(bindings));
  for (const WeightPlace& place : bindings.places) {
    if (!Aligned(place.address - place.offset % 64)) {
      return absl::InvalidArgumentError("places of weights must be aligned as the weights are in their blob");
    }
  }
  for (const std::byte* input : bindings.inputs) {
    if (!Aligned(input)) return absl::InvalidArgumentError("inputs must be 64-byte aligned");
  }
  for (const std::byte* output : bindings.outputs) {
    if (output == nullptr || !Aligned(output)) {
      return absl::InvalidArgumentError("outputs must be bound and 64-byte aligned");
    }
  }
  return absl::OkStatus();
}

namespace {

const std::byte* WeightAddress(const PlanBindings& bindings, std::uint64_t position) {
  if (bindings.places.empty()) return bindings.weights + position;
  const auto behind = std::ranges::upper_bound(bindings.places, position, {}, &WeightPlace::offset);
  TROUPE_CHECK(behind != bindings.places.begin(), "a weight is in none of the places that were bound");
  const WeightPlace& place = *std::prev(behind);
  TROUPE_CHECK(position - place.offset < place.length, "a weight is in none of the places that were bound");
  return place.address + (position - place.offset);
}

}  // namespace

std::byte* CpuPlan::Address(const ProgramValue& value, const PlanBindings& bindings) const {
  switch (value.place) {
    case Place::kInput:
      return const_cast<std::byte*>(bindings.inputs[value.position]);  // kernels do not write their inputs
    case Place::kWeights:
      return const_cast<std::byte*>(WeightAddress(bindings, value.position));
    case Place::kConstant:
      return program_.constants[value.position].data();
    case Place::kActivation:
      return bindings.activations + value.position;
    case Place::kOutput:
      return bindings.outputs[value.position];
    case Place::kNone:
      break;
  }
  return nullptr;
}

std::unique_ptr<CpuPlan::Frame> CpuPlan::MakeFrame() const {
  auto frame = std::make_unique<Frame>();
  for (const Step& step : steps_) frame->steps.push_back({step.in, step.out});
  for (const ProgramValue& value : program_.values) frame->shapes.push_back(value.info.shape);
  return frame;
}

void CpuPlan::Bind(std::size_t step, Frame& frame, const PlanBindings& bindings) const {
  const Instruction& instruction = program_.instructions[step];
  const bool shapes_vary = steps_[step].shapes_vary;
  Frame::Views& views = frame.steps[step];
  for (std::size_t i = 0; i < views.in.size(); ++i) {
    if (instruction.inputs[i] == kAbsent) continue;
    const std::size_t id = Index(instruction.inputs[i]);
    views.in[i].data = Address(program_.values[id], bindings);
    if (shapes_vary) views.in[i].shape = frame.shapes[id];
  }
  for (std::size_t i = 0; i < views.out.size(); ++i) {
    if (instruction.outputs[i] == kAbsent) continue;
    const ProgramValue& value = program_.values[Index(instruction.outputs[i])];
    views.out[i].data = Address(value, bindings);
    if (shapes_vary) views.out[i].shape = value.info.shape;
  }
}

absl::Status CpuPlan::KeepShapes(std::size_t step, Frame& frame) const {
  const Instruction& instruction = program_.instructions[step];
  const std::vector<TensorView>& out = frame.steps[step].out;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (instruction.outputs[i] == kAbsent) continue;
    const std::size_t id = Index(instruction.outputs[i]);
    const Shape& shape = out[i].shape;
    const auto elements = CountElements(shape);
    if (!elements.ok() || *elements > program_.values[id].info.elements()) {
      return absl::InternalError(absl::StrCat(instruction.label, ": output of shape ", FormatShape(shape),
                                              " exceeds its bound ",
                                              FormatShape(program_.values[id].info.shape)));
    }
    frame.shapes[id] = shape;
  }
  return absl::OkStatus();
}

absl::Status CpuPlan::RunSteps(Frame& frame, const PlanBindings& bindings) const {
  std::size_t at = 0;
  const Pause pause = [&bindings, &at] {
    return bindings.before_step ? bindings.before_step(at) : absl::OkStatus();
  };
  for (; at < steps_.size(); ++at) {
    TROUPE_RETURN_IF_ERROR(pause());
    const Instruction& instruction = program_.instructions[at];
    Bind(at, frame, bindings);
    Frame::Views& views = frame.steps[at];
    std::byte* scratch = bindings.activations + instruction.scratch;
    const absl::Status status = instruction.kernel->RunInParts(views.in, views.out, scratch, pause);
    if (!status.ok())
      return absl::Status(status.code(),
                          absl::StrCat(instruction.label, ": ", std::string(status.message())));
    if (steps_[at].shapes_vary) TROUPE_RETURN_IF_ERROR(KeepShapes(at, frame));
  }
  return absl::OkStatus();
}

absl::Status CpuPlan::RunSubgraph(std::span<const TensorView> in, std::span<TensorView> out,
                                  std::byte* activations, const Pause& pause) const {
  const auto frame = frames_.Take([this] { return MakeFrame(); });
  PlanBindings& bindings = frame->subgraph;
  bindings.activations = activations;
  bindings.before_step = [&pause](std::size_t) { return pause(); };
  bindings.inputs.clear();
  for (std::size_t i = 0; i < in.size(); ++i) {
    bindings.inputs.push_back(in[i].data);
    frame->shapes[i] = in[i].shape;
  }
  bindings.outputs.clear();
  for (const TensorView& view : out) bindings.outputs.push_back(view.data);
  TROUPE_RETURN_IF_ERROR(RunSteps(*frame, bindings));
  for (std::size_t o = 0; o < out.size(); ++o) out[o].shape = frame->shapes[Index(program_.outputs[o])];
  return absl::OkStatus();
}

absl::StatusOr<std::vector<proto::TensorSpec>> CpuPlan::Run(const PlanBindings& bindings) const {
  TROUPE_RETURN_IF_ERROR(CheckBindings(bindings));
  const ThreadsScope scope(program_.threads);
  const auto frame = frames_.Take([this] { return MakeFrame(); });
  for (const std::size_t id : text_inputs_)
    frame->shapes[id] = {
        static_cast<std::int64_t>(bindings.input_bytes[program_.values[id].position].count())};
  TROUPE_RETURN_IF_ERROR(RunSteps(*frame, bindings));
  std::vector<proto::TensorSpec> specs = program_.output_specs;
  for (std::size_t o = 0; o < specs.size(); ++o) {
    const int texts = program_.output_texts[o];
    if (texts != kAbsent)
      specs[o].set_text_bytes(static_cast<std::uint64_t>(frame->shapes[Index(program_.outputs[o])][0]));
    const Shape& shape = frame->shapes[Index(texts != kAbsent ? texts : program_.outputs[o])];
    for (std::size_t d = 0; d < shape.size() && d < static_cast<std::size_t>(specs[o].shape_size()); ++d) {
      specs[o].set_shape(static_cast<int>(d), shape[d]);
    }
  }
  return specs;
}

}  // namespace troupe::gpu
