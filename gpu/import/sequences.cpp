#include "gpu/import/sequences.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/import/onnx_node.hpp"
#include "gpu/import/passes.hpp"
#include "gpu/import/step_order.hpp"

namespace troupe::gpu {
namespace {

constexpr int kSequencesFrom = 11;  // opsets
constexpr int kOptionalsFrom = 15;
constexpr int kAxesAreInputsFrom = 13;  // of Split, Squeeze and Unsqueeze

// A file of some kilobytes could else ask for lists without end.
constexpr std::size_t kMostElements = std::size_t{1} << 16;

constexpr std::array<std::string_view, 8> kOfSequences = {
    "SequenceEmpty",  "SequenceConstruct", "SequenceInsert",     "SequenceErase",
    "SequenceLength", "SequenceAt",        "ConcatFromSequence", "SplitToSequence"};
constexpr std::array<std::string_view, 3> kOfOptionals = {"Optional", "OptionalGetElement",
                                                          "OptionalHasElement"};

using Names = std::vector<std::string>;

class Resolver {
 public:
  explicit Resolver(Graph& graph) : graph_(graph) {}

  absl::StatusOr<bool> Run() {
    if (std::ranges::any_of(graph_.steps, [](const auto& step) { return step.op() == "SplitToSequence"; }))
      if (auto values = InferShapes(graph_); values.ok()) values_ = *std::move(values);
    std::vector<proto::Step> steps = std::exchange(graph_.steps, {});
    for (proto::Step& step : steps) {
      TROUPE_ASSIGN_OR_RETURN(const bool resolved, Visit(step));
      changed_ |= resolved;
      if (!resolved) graph_.steps.push_back(std::move(step));
    }
    if (changed_) TROUPE_RETURN_IF_ERROR(SortSteps(graph_));
    return changed_;
  }

 private:
  // True: other steps stand for this one.
  absl::StatusOr<bool> Visit(proto::Step& step) {
    if (step.op() == "Identity") {
      if (const Names* elements = SequenceOf(step)) return Remember(step, Names(*elements));
      return false;
    }
    if (!IsSequenceOperator(step.op(), graph_.opset) || step.outputs_size() != 1) return false;
    if (step.op().starts_with("Optional")) return ResolveOptional(step);
    if (step.op() == "SequenceEmpty") return Remember(step, {});
    if (step.op() == "SequenceConstruct") return Remember(step, {step.inputs().begin(), step.inputs().end()});
    if (step.op() == "SplitToSequence") return ResolveSplit(step);
    const Names* elements = SequenceOf(step);
    if (elements == nullptr) return false;
    if (step.op() == "SequenceLength") {
      const auto length = static_cast<std::int64_t>(elements->size());
      return WriteConstant(step, {proto::INT64, {}, HoldBytes(&length, sizeof(length))});
    }
    if (step.op() == "ConcatFromSequence") return ResolveConcat(step, *elements);
    return ResolvePosition(step, *elements);
  }

  [[nodiscard]] const Names* SequenceOf(const proto::Step& step) const {
    const auto sequence = step.inputs_size() > 0 ? sequences_.find(step.inputs(0)) : sequences_.end();
    return sequence == sequences_.end() ? nullptr : &sequence->second;
  }

  // Whether the model may have so many elements more.
  [[nodiscard]] absl::Status Fits(const proto::Step& step, std::size_t elements) const {
    if (elements <= kMostElements - elements_) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        StepLabel(step), ": the model's sequences have more than ", kMostElements, " elements in all"));
  }

  absl::Status Count(const proto::Step& step, std::size_t elements) {
    TROUPE_RETURN_IF_ERROR(Fits(step, elements));
    elements_ += elements;
    return absl::OkStatus();
  }

  // The step makes a sequence, and stays until it is known that no other step reads it.
  absl::StatusOr<bool> Remember(const proto::Step& step, Names elements) {
    TROUPE_RETURN_IF_ERROR(Count(step, elements.size() + 1));
    if (std::ranges::find(elements, "") != elements.end())
      return StepContext{step}.Error("an input that it puts into its sequence has no name");
    sequences_[step.outputs(0)] = std::move(elements);
    return false;
  }

  // An empty optional has an attribute that the reader refuses, so what is in an optional is what Optional took.
  absl::StatusOr<bool> ResolveOptional(proto::Step& step) {
    const bool given = step.inputs_size() == 1 && !step.inputs(0).empty();
    if (step.op() == "OptionalHasElement") {
      const char has = given ? 1 : 0;
      return WriteConstant(step, {proto::BOOL, {}, HoldBytes(&has, sizeof(has))});
    }
    if (!given) return StepContext{step}.Error("has no input to take an element of");
    const Names* elements = SequenceOf(step);
    if (elements != nullptr) TROUPE_RETURN_IF_ERROR(Remember(step, Names(*elements)).status());
    WriteIdentity(step.inputs(0), step.outputs(0));
    return true;
  }

  // SequenceAt, SequenceInsert and SequenceErase.
  absl::StatusOr<bool> ResolvePosition(const proto::Step& step, const Names& before) {
    const bool inserts = step.op() == "SequenceInsert";
    if (inserts && step.inputs_size() < 2) return StepContext{step}.Error("has no tensor to insert");
    const int place = inserts ? 2 : 1;
    const auto length = static_cast<std::int64_t>(before.size());
    const std::int64_t last = inserts ? length : length - 1;
    std::int64_t position = last;
    if (step.inputs_size() > place && !step.inputs(place).empty()) {
      const std::optional<std::vector<std::int64_t>> given = IntsOf(step.inputs(place));
      if (!given) return false;
      if (given->size() != 1) return StepContext{step}.Error("the position must be one number");
      position = given->front() < 0 ? given->front() + length : given->front();
    } else if (step.op() == "SequenceAt") {
      return StepContext{step}.Error("has no position");
    }
    if (position < 0 || position > last)
      return StepContext{step}.Error(
          absl::StrCat("the position lies outside of a sequence of ", length, " tensors"));
    if (step.op() == "SequenceAt") {
      WriteIdentity(before[static_cast<std::size_t>(position)], step.outputs(0));
      return true;
    }
    TROUPE_RETURN_IF_ERROR(Fits(step, before.size()));
    Names after = before;
    if (inserts)
      after.insert(after.begin() + position, step.inputs(1));
    else
      after.erase(after.begin() + position);
    return Remember(step, std::move(after));
  }

  absl::StatusOr<bool> ResolveConcat(const proto::Step& step, const Names& elements) {
    const StepContext context{step};
    if (elements.empty()) return context.Error("joins a sequence of no tensors");
    const proto::Attribute* axis = context.Find("axis");
    if (axis == nullptr) return context.Error("has no axis");
    TROUPE_RETURN_IF_ERROR(Count(step, elements.size()));
    Names parts = elements;
    if (context.Int("new_axis", 0) != 0) {
      TROUPE_ASSIGN_OR_RETURN(const std::string axes, AxesFor(step, axis->i()));
      for (std::size_t i = 0; i < parts.size(); ++i) {
        std::string part = absl::StrCat(step.outputs(0), "/", i);
        WriteAlong("Unsqueeze", parts[i], part, axes, axis->i());
        parts[i] = std::move(part);
      }
    }
    proto::Step& concat = Write("Concat", step.name());
    concat.mutable_inputs()->Assign(parts.begin(), parts.end());
    concat.add_outputs(step.outputs(0));
    *concat.add_attributes() = *axis;
    return true;
  }

  absl::StatusOr<bool> ResolveSplit(const proto::Step& step) {
    const StepContext context{step};
    if (step.inputs_size() < 1) return context.Error("has no input");
    TROUPE_ASSIGN_OR_RETURN(const std::optional<std::vector<std::int64_t>> sizes, SizesOf(step));
    if (!sizes) return false;
    TROUPE_RETURN_IF_ERROR(Fits(step, sizes->size()));
    const std::string& sequence = step.outputs(0);
    const std::int64_t axis = context.Int("axis", 0);
    const bool given = step.inputs_size() > 1 && !step.inputs(1).empty();
    const bool drops = !given && context.Int("keepdims", 1) == 0;
    proto::Step construct;
    construct.set_op("SequenceConstruct");
    construct.set_name(step.name());
    construct.add_outputs(sequence);
    if (!sizes->empty()) {
      proto::Step& split = Write("Split", step.name());
      split.add_inputs(step.inputs(0));
      AddInt("axis", axis, split);
      for (std::size_t i = 0; i < sizes->size(); ++i) {
        construct.add_inputs(absl::StrCat(sequence, "/", i));
        split.add_outputs(absl::StrCat(construct.inputs(static_cast<int>(i)), drops ? "/kept" : ""));
      }
      if (graph_.opset < kAxesAreInputsFrom) {
        proto::Attribute& attribute = *split.add_attributes();
        attribute.set_name("split");
        attribute.mutable_ints()->mutable_values()->Assign(sizes->begin(), sizes->end());
      } else {
        split.add_inputs(absl::StrCat(sequence, "/sizes"));
        TROUPE_RETURN_IF_ERROR(AddInts(step, split.inputs(1), *sizes));
      }
    }
    if (drops && !sizes->empty()) {
      TROUPE_ASSIGN_OR_RETURN(const std::string axes, AxesFor(step, axis));
      for (const std::string& part : construct.inputs())
        WriteAlong("Squeeze", absl::StrCat(part, "/kept"), part, axes, axis);
    }
    TROUPE_RETURN_IF_ERROR(
        Remember(construct, {construct.inputs().begin(), construct.inputs().end()}).status());
    graph_.steps.push_back(std::move(construct));
    return true;
  }

  // Of each part along the axis; nothing when they are not known before a run.
  absl::StatusOr<std::optional<std::vector<std::int64_t>>> SizesOf(const proto::Step& step) {
    const StepContext context{step};
    std::int64_t each = 1;
    if (step.inputs_size() > 1 && !step.inputs(1).empty()) {
      auto given = IntsOf(step.inputs(1));
      if (!given) return std::nullopt;
      if (!graph_.constants.at(step.inputs(1)).shape.empty()) return given;
      if (given->size() != 1) return context.Error("the size of its parts is no number");
      each = given->front();
    }
    if (each < 1) return context.Error(absl::StrCat("parts of ", each, " elements are none"));
    const auto value = values_.find(step.inputs(0));
    if (value == values_.end()) return std::nullopt;
    const Shape& shape = value->second.shape;
    const auto rank = static_cast<std::int64_t>(shape.size());
    const std::int64_t axis = context.Int("axis", 0);
    if (axis < -rank || axis >= rank)
      return context.Error(absl::StrCat("axis ", axis, " is none of its ", rank, " dimensions"));
    const std::int64_t size = shape[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)];
    if (size < 0 || value->second.bounded) return std::nullopt;
    const std::int64_t parts = size / each + (size % each > 0 ? 1 : 0);
    TROUPE_RETURN_IF_ERROR(Fits(step, static_cast<std::size_t>(parts)));
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), each);
    if (size % each > 0) sizes.back() = size % each;
    return sizes;
  }

  // The numbers of a constant; nothing when it is none, or not of whole numbers.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> IntsOf(const std::string& name) const {
    const auto constant = graph_.constants.find(name);
    if (constant == graph_.constants.end()) return std::nullopt;
    const std::string_view bytes = *constant->second.data;
    std::vector<std::int64_t> values;
    const auto read = [&]<class T>(T value) {
      for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
        std::memcpy(&value, bytes.data() + at, sizeof(T));
        values.push_back(value);
      }
    };
    if (constant->second.type == proto::INT64)
      read(std::int64_t{});
    else if (constant->second.type == proto::INT32)
      read(std::int32_t{});
    else
      return std::nullopt;
    return values;
  }

  proto::Step& Write(const char* op, const std::string& name) {
    proto::Step& step = graph_.steps.emplace_back();
    step.set_op(op);
    step.set_name(name);
    return step;
  }

  void WriteIdentity(const std::string& from, const std::string& to) {
    proto::Step& step = Write("Identity", to);
    step.add_inputs(from);
    step.add_outputs(to);
  }

  absl::StatusOr<bool> WriteConstant(const proto::Step& step, Constant constant) {
    const std::string name = absl::StrCat(step.outputs(0), "/value");
    TROUPE_RETURN_IF_ERROR(Add(step, name, std::move(constant)));
    WriteIdentity(name, step.outputs(0));
    return true;
  }

  absl::Status Add(const proto::Step& step, const std::string& name, Constant constant) {
    if (graph_.constants.try_emplace(name, std::move(constant)).second) return absl::OkStatus();
    return StepContext{step}.Error(absl::StrCat("the name '", name, "' is taken"));
  }

  absl::Status AddInts(const proto::Step& step, const std::string& name,
                       const std::vector<std::int64_t>& values) {
    return Add(step, name,
               {proto::INT64,
                {static_cast<std::int64_t>(values.size())},
                HoldBytes(values.data(), values.size() * sizeof(std::int64_t))});
  }

  // The constant that WriteAlong reads; no name where the axis is an attribute.
  absl::StatusOr<std::string> AxesFor(const proto::Step& step, std::int64_t axis) {
    if (graph_.opset < kAxesAreInputsFrom) return "";
    std::string name = absl::StrCat(step.outputs(0), "/axes");
    TROUPE_RETURN_IF_ERROR(AddInts(step, name, {axis}));
    return name;
  }

  // Squeeze or Unsqueeze.
  void WriteAlong(const char* op, const std::string& from, const std::string& to, const std::string& axes,
                  std::int64_t axis) {
    proto::Step& step = Write(op, to);
    step.add_inputs(from);
    step.add_outputs(to);
    if (!axes.empty()) {
      step.add_inputs(axes);
      return;
    }
    proto::Attribute& attribute = *step.add_attributes();
    attribute.set_name("axes");
    attribute.mutable_ints()->add_values(axis);
  }

  static void AddInt(const char* name, std::int64_t value, proto::Step& step) {
    proto::Attribute& attribute = *step.add_attributes();
    attribute.set_name(name);
    attribute.set_i(value);
  }

  Graph& graph_;
  ValueInfos values_;                                  // where there is a SplitToSequence
  absl::flat_hash_map<std::string, Names> sequences_;  // the known sequences, by name
  std::size_t elements_ = 0;
  bool changed_ = false;
};

}  // namespace

bool IsSequenceOperator(std::string_view op, int opset) {
  return (opset >= kSequencesFrom && std::ranges::find(kOfSequences, op) != kOfSequences.end()) ||
         (opset >= kOptionalsFrom && std::ranges::find(kOfOptionals, op) != kOfOptionals.end());
}

absl::StatusOr<bool> ResolveSequences(Graph& graph) {
  const auto of_sequences = [&](const proto::Step& step) {
    return IsSequenceOperator(step.op(), graph.opset);
  };
  if (std::ranges::none_of(graph.steps, of_sequences)) return false;
  return Resolver(graph).Run();
}

}  // namespace troupe::gpu
