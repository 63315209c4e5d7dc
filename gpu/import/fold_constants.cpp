// The walk that knows values: folding and shape inference are one, since a folded Shape makes later shapes
// known.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/engine/control_steps.hpp"
#include "gpu/import/evaluate.hpp"
#include "gpu/import/fold_budget.hpp"
#include "gpu/import/onnx_node.hpp"
#include "gpu/import/passes.hpp"

namespace troupe::gpu {
namespace {

// Reads shapes, never contents.
bool ReadsShapeOnly(const std::string& op) {
  return op == "Shape" || op == "Size";
}

bool Dynamic(const proto::TensorSpec& spec) {
  for (std::int64_t size : spec.shape())
    if (size < 0) return true;
  return false;
}

OpenDimensions::Sizes Alike(const Graph& graph, std::int64_t size) {
  return graph.open.SizesOf({size});
}

bool OnlyBatchIsDynamic(const Graph& graph) {
  for (const proto::TensorSpec& input : graph.inputs)
    for (int i = 1; i < input.shape_size(); ++i)
      if (input.shape(i) < 0) return false;
  return true;
}

class Walk {
 public:
  // `open`: what the inputs' open dimensions are taken for; absent: values that depend on them stay unknown.
  // `budget` outlives the walk.
  Walk(const Graph& graph, std::optional<OpenDimensions::Sizes> open, Bytes max_folded, FoldBudget& budget)
      : graph_(graph), open_(std::move(open)), max_folded_(max_folded), budget_(budget) {
    for (const proto::TensorSpec& input : graph.inputs) AddInput(input);
    for (const auto& [name, constant] : graph.constants) infos_[name] = InfoOf(constant);
  }

  // Learns what `step` produces. True: everything of it is a constant now.
  absl::StatusOr<bool> Visit(const proto::Step& step) {
    const StepContext context{step, graph_.opset};
    std::vector<ValueInfo> in;
    bool constant = true;
    for (const std::string& name : step.inputs()) {
      if (name.empty()) {
        in.emplace_back();
        continue;
      }
      const auto known = infos_.find(name);
      if (known == infos_.end()) return false;
      in.push_back(known->second);
      constant &= known->second.constant != nullptr;
    }
    const bool control = step.subgraphs_size() > 0;
    if (!control && FindOperator(step.op(), graph_.opset) == nullptr) return false;
    TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out,
                            control ? InferControlStep(context, in) : Infer(context, in));
    if (!control && (constant || ReadsShapeOnly(step.op())) && SmallEnough(out) &&
        budget_.Spend(context, in, out)) {
      auto results = Evaluate(context, in, out);
      if (results.ok()) return Keep(step, *std::move(results));
      // What infer accepts and make refuses is an operator's limit; it is told when the model is prepared.
      if (results.status().code() != absl::StatusCode::kUnimplemented) return results.status();
    }
    for (int i = 0; i < step.outputs_size(); ++i) {
      out[static_cast<std::size_t>(i)].constant = nullptr;
      if (!step.outputs(i).empty()) infos_[step.outputs(i)] = out[static_cast<std::size_t>(i)];
    }
    return false;
  }

  [[nodiscard]] ValueInfos& infos() { return infos_; }
  [[nodiscard]] absl::flat_hash_map<std::string, Constant>& folded() { return folded_; }
  [[nodiscard]] Bytes folded_bytes() const { return folded_bytes_; }

  // Contents that no later step reads need not be kept.
  void Forget(const std::string& name) {
    const auto constant = folded_.find(name);
    if (constant == folded_.end()) return;
    folded_bytes_ -= Bytes(constant->second.data->size());
    folded_.erase(constant);
    infos_[name].constant = nullptr;
  }

 private:
  void AddInput(const proto::TensorSpec& spec) {
    if (!open_ && Dynamic(spec)) return;
    if (spec.type() == proto::DATA_TYPE_UNSPECIFIED) return;  // of a subgraph: its step gives it a type
    ValueInfo info;
    info.type = spec.type();
    const proto::TensorSpec known = Dynamic(spec) ? graph_.open.With(*open_, spec) : spec;
    info.shape.assign(known.shape().begin(), known.shape().end());
    infos_[spec.name()] = std::move(info);
  }

  [[nodiscard]] bool SmallEnough(const std::vector<ValueInfo>& out) const {
    Bytes total;
    for (const ValueInfo& info : out) {
      if (info.type == proto::BYTES) return false;
      total += Bytes(static_cast<std::uint64_t>(info.elements()) * ElementSize(info.type));
      if (total > max_folded_) return false;
    }
    return true;
  }

  bool Keep(const proto::Step& step, std::vector<Constant> results) {
    for (int i = 0; i < step.outputs_size(); ++i) {
      if (step.outputs(i).empty()) continue;
      Constant& constant = folded_[step.outputs(i)] = std::move(results[static_cast<std::size_t>(i)]);
      folded_bytes_ += Bytes(constant.data->size());
      infos_[step.outputs(i)] = InfoOf(constant);
    }
    return true;
  }

  const Graph& graph_;
  std::optional<OpenDimensions::Sizes> open_;
  Bytes max_folded_;
  FoldBudget& budget_;
  ValueInfos infos_;
  absl::flat_hash_map<std::string, Constant> folded_;
  Bytes folded_bytes_;
};

absl::Status LimitOf(const proto::Step& step, const ImportOptions& options) {
  return absl::ResourceExhaustedError(absl::StrCat(StepLabel(step),
                                                   ": the constants computed so far exceed the limit of ",
                                                   FormatBytes(options.max_weights), " for all weights"));
}

}  // namespace

absl::Status FoldConstants(Graph& graph, const ImportOptions& options, FoldBudget& budget) {
  Walk walk(graph, std::nullopt, options.max_folded, budget);
  UseCounts uses = CountUses(graph);
  std::vector<proto::Step> left;
  std::uint64_t visited = 0;
  for (proto::Step& step : graph.steps) {
    if (options.on_folding) options.on_folding(visited++, graph.steps.size());
    TROUPE_ASSIGN_OR_RETURN(bool folded, walk.Visit(step));
    if (walk.folded_bytes() > options.max_weights) return LimitOf(step, options);
    // A model output must come from a step.
    for (const std::string& output : step.outputs()) folded &= !IsOutput(graph, output);
    if (!folded) {
      left.push_back(std::move(step));
      continue;
    }
    for (const std::string& input : step.inputs())
      if (--uses[input] == 0) walk.Forget(input);
  }
  for (const proto::Step& step : left)
    for (const std::string& output : step.outputs()) walk.folded().erase(output);
  graph.steps = std::move(left);
  for (auto& [name, constant] : walk.folded()) graph.constants.emplace(name, std::move(constant));
  return absl::OkStatus();
}

absl::Status FoldConstants(Graph& graph, const ImportOptions& options) {
  FoldBudget budget(options.folding);
  return FoldConstants(graph, options, budget);
}

absl::StatusOr<ValueInfos> InferValues(const Graph& graph, const OpenDimensions::Sizes& open) {
  // Shape arithmetic is small; contents of weights need not be computed to know their shapes.
  constexpr Bytes kShapeArithmetic = KiB(64);
  FoldBudget budget({.operations = std::uint64_t{1} << 28, .bytes = MiB(256)});
  Walk walk(graph, open, kShapeArithmetic, budget);
  for (const proto::Step& step : graph.steps) TROUPE_RETURN_IF_ERROR(walk.Visit(step).status());
  // The contents die with the walk.
  for (auto& [name, info] : walk.infos()) info.constant = nullptr;
  return std::move(walk.infos());
}

absl::StatusOr<ValueInfos> InferShapes(const Graph& graph) {
  bool dynamic = false;
  for (const proto::TensorSpec& input : graph.inputs) dynamic |= Dynamic(input);
  auto one = InferValues(graph, Alike(graph, 1));
  if (!dynamic) return one;
  // Two choices apart tell which dimensions follow the inputs' and which are fixed. Where only one works, as
  // in a model that is made for one batch size, nothing general is known.
  auto two = InferValues(graph, Alike(graph, 2));
  if (!one.ok() && !two.ok() && OnlyBatchIsDynamic(graph)) {
    // No batch size works: the model itself is wrong, and its deployer should know now.
    bool any = false;
    for (std::int64_t batch : {3, 4, 8, 16, 32, 64, 128})
      any = any || InferValues(graph, Alike(graph, batch)).ok();
    if (!any) return one.status();
  }
  if (!one.ok() || !two.ok()) return ValueInfos();
  ValueInfos general;
  for (auto& [name, info] : *one) {
    const auto other = two->find(name);
    if (other == two->end() || other->second.shape.size() != info.shape.size()) continue;
    ValueInfo merged = info;
    merged.bounded |= other->second.bounded;
    for (std::size_t i = 0; i < merged.shape.size(); ++i)
      if (merged.shape[i] != other->second.shape[i]) merged.shape[i] = -1;
    general.emplace(name, std::move(merged));
  }
  return general;
}

}  // namespace troupe::gpu
