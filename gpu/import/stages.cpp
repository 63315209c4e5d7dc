#include "gpu/import/stages.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/import/distinct_contents.hpp"
#include "gpu/import/onnx_node.hpp"
#include "gpu/import/passes.hpp"
#include "gpu/import/weight_layout.hpp"
#include "proto/element_size.hpp"

namespace troupe::gpu {
namespace {

using Steps = std::set<std::size_t>;

// What a constant takes among the weights.
Bytes PlaceOf(const Constant& constant) {
  return AlignUp(Bytes(constant.data->size()), kWeightAlignment);
}

// Whether the weights could take more: as if all constants were read, and differed. Tells most models at once.
bool CouldTakeMoreThan(const Graph& graph, Bytes limit) {
  Bytes sum;
  for (const auto& [name, constant] : graph.constants) sum += PlaceOf(constant);
  return sum > limit;
}

// Who makes and who reads the values of a graph.
//
// What can be told from shapes and constants (Shape, and arithmetic with its results) has to be known when a plan is made. No
// stage gets it as an input: each has the steps for it that it needs.
class ValueFlow {
 public:
  explicit ValueFlow(const Graph& graph) : graph_(graph), from_shapes_(graph.steps.size()) {
    for (std::size_t i = 0; i < graph.steps.size(); ++i) {
      from_shapes_[i] = IsFromShapes(graph.steps[i]);
      for (const auto& output : graph.steps[i].outputs())
        if (!output.empty()) maker_[output] = i;
    }
    for (std::size_t i = graph.steps.size(); i-- > 0;) NoteReads(i);
  }

  [[nodiscard]] bool FromShapes(std::size_t step) const { return from_shapes_[step]; }
  // Nothing for inputs of the graph and constants.
  [[nodiscard]] std::optional<std::size_t> MakerOf(const std::string& value) const {
    const auto maker = maker_.find(value);
    return maker == maker_.end() ? std::nullopt : std::optional(maker->second);
  }
  // The last step that needs the value, itself or for what it knows of shapes.
  [[nodiscard]] std::optional<std::size_t> LastReader(const std::string& value) const {
    const auto reader = last_reader_.find(value);
    return reader == last_reader_.end() ? std::nullopt : std::optional(reader->second);
  }
  // Adds a step, and those before it that tell it what it has to know of shapes.
  void AddWithShapes(std::size_t step, Steps& steps) const {
    for (std::vector<std::size_t> left = {step}; !left.empty();) {
      const std::size_t next = left.back();
      left.pop_back();
      if (!steps.insert(next).second) continue;
      for (const auto& input : graph_.steps[next].inputs()) {
        const auto maker = MakerOf(input);
        if (maker && from_shapes_[*maker]) left.push_back(*maker);
      }
    }
  }

 private:
  [[nodiscard]] bool IsFromShapes(const proto::Step& step) const {
    for (const auto& output : step.outputs())
      if (IsOutput(graph_, output)) return false;
    if (step.op() == "Shape" || step.op() == "Size") return true;
    return step.subgraphs().empty() && std::ranges::all_of(step.inputs(), [&](const std::string& input) {
             const auto maker = MakerOf(input);
             return input.empty() || graph_.constants.contains(input) || (maker && from_shapes_[*maker]);
           });
  }
  void NoteReads(std::size_t step) {
    std::optional<std::size_t> reader;
    if (!from_shapes_[step]) reader = step;
    for (const auto& output : graph_.steps[step].outputs())
      if (from_shapes_[step]) reader = std::max(reader, LastReader(output));
    if (!reader) return;
    for (const auto& input : graph_.steps[step].inputs()) {
      auto& last = last_reader_[input];
      last = std::max(last, *reader);
    }
  }

  const Graph& graph_;
  std::vector<bool> from_shapes_;
  absl::flat_hash_map<std::string, std::size_t> maker_;
  absl::flat_hash_map<std::string, std::size_t> last_reader_;
};

// The contents of a graph's constants by number: equal ones have one, as they have one place among the weights.
class Contents {
 public:
  explicit Contents(const Graph& graph) {
    DistinctContents distinct;
    for (const auto& [name, constant] : graph.constants) {
      const std::size_t number = distinct.Add(*constant.data);
      number_[name] = number;
      if (number == sizes_.size()) sizes_.push_back(PlaceOf(constant));
    }
  }
  [[nodiscard]] std::optional<std::size_t> NumberOf(const std::string& constant) const {
    const auto number = number_.find(constant);
    return number == number_.end() ? std::nullopt : std::optional(number->second);
  }
  [[nodiscard]] Bytes SizeOf(std::size_t number) const { return sizes_[number]; }

 private:
  absl::flat_hash_map<std::string, std::size_t> number_;
  std::vector<Bytes> sizes_;
};

// The memory of the weights that some steps read.
class WeightSum {
 public:
  WeightSum(const Graph& graph, const Contents& contents) : graph_(graph), contents_(contents) {}
  void Add(const Steps& steps) {
    for (const std::size_t step : steps)
      for (const auto& input : graph_.steps[step].inputs())
        if (const auto number = contents_.NumberOf(input); number && counted_.insert(*number).second)
          bytes_ += contents_.SizeOf(*number);
  }
  [[nodiscard]] Bytes bytes() const { return bytes_; }

 private:
  const Graph& graph_;
  const Contents& contents_;
  absl::flat_hash_set<std::size_t> counted_;
  Bytes bytes_;
};

// Choices of one size for all open dimensions that work: so many tell as much as all of them.
constexpr int kAlike = 4;

// What is known of every value, whatever the open dimensions are: -1 where two choices that work differ. Nothing when none works.
ValueInfos ValuesOf(const Graph& graph) {
  std::optional<ValueInfos> general;
  const auto merge = [&](const ValueInfos& other) {
    absl::erase_if(*general, [&](auto& entry) {
      const auto found = other.find(entry.first);
      if (found == other.end() || found->second.shape.size() != entry.second.shape.size()) return true;
      for (std::size_t i = 0; i < entry.second.shape.size(); ++i)
        if (entry.second.shape[i] != found->second.shape[i]) entry.second.shape[i] = -1;
      entry.second.bounded |= found->second.bounded;
      return false;
    });
  };
  int alike = 0;
  for (const auto& trial : graph.open.Trials()) {
    if (trial.twice.empty() && alike >= kAlike) continue;
    auto values = InferValues(graph, graph.open.SizesOf(trial));
    if (!values.ok()) continue;
    alike += trial.twice.empty() ? 1 : 0;
    if (general) {
      merge(*values);
    } else {
      general = *std::move(values);
    }
    if (graph.open.symbols() == 0) break;
  }
  return general ? *std::move(general) : ValueInfos();
}

// The value's shape there; nothing when one of the stage's inputs is not known.
std::vector<proto::TensorSpec> InputsFrom(const ValueInfos& values, std::vector<proto::TensorSpec> inputs) {
  for (auto& input : inputs) {
    const auto value = values.find(input.name());
    if (value == values.end()) return {};
    input.mutable_shape()->Assign(value->second.shape.begin(), value->second.shape.end());
  }
  return inputs;
}

// The inputs of each stage when the whole graph is given one row, with the first sizes that work.
void AddLikelyInputs(const Graph& whole, std::vector<DividedGraph::Stage>& stages) {
  Graph concrete = whole;
  for (const auto& trial : whole.open.Trials()) {
    const auto sizes = whole.open.SizesOf(trial);
    for (std::size_t i = 0; i < whole.inputs.size(); ++i)
      concrete.inputs[i] = whole.open.ForOneRow(sizes, whole.inputs[i]);
    const auto values = InferValues(concrete, {});
    if (!values.ok()) continue;
    for (auto& stage : stages) stage.likely_inputs = InputsFrom(*values, stage.graph.inputs);
    return;
  }
}

// A stage: the steps [begin, end), and those for shapes.
struct StageRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Where a graph is divided, and the graphs of its stages.
class Division {
 public:
  explicit Division(const Graph& graph) : graph_(graph), contents_(graph), flow_(graph) {}

  [[nodiscard]] Bytes Whole() const {
    WeightSum sum(graph_, contents_);
    for (std::size_t i = 0; i < graph_.steps.size(); ++i) sum.Add({i});
    return sum.bytes();
  }
  // As few stages of at most so much memory as there can be, about alike.
  [[nodiscard]] absl::StatusOr<std::vector<StageRange>> Cut(Bytes most) {
    values_ = ValuesOf(graph_);
    handed_on_ = HandedOn();
    TROUPE_ASSIGN_OR_RETURN(const auto fewest, Fill(most));
    const double even = static_cast<double>(Whole().count()) / static_cast<double>(fewest.size());
    for (const double slack : {1.02, 1.05, 1.1, 1.2, 1.4}) {
      const Bytes target(static_cast<std::uint64_t>(even * slack));
      if (target >= most) break;
      const auto stages = Fill(target);
      if (stages.ok() && stages->size() == fewest.size()) return stages;
    }
    return fewest;
  }
  // The graph of one of these stages, after Cut.
  [[nodiscard]] Graph Of(const StageRange& stage) const {
    const Steps steps = StepsOf(stage);
    Graph part;
    part.name = graph_.name;
    part.onnx_digest = graph_.onnx_digest;
    part.opset = graph_.opset;
    AddInputs(stage, steps, part);
    for (const std::size_t step : steps) {
      part.steps.push_back(graph_.steps[step]);
      for (const auto& input : graph_.steps[step].inputs())
        if (const auto constant = graph_.constants.find(input); constant != graph_.constants.end())
          part.constants.insert(*constant);
      if (step < stage.begin) continue;
      for (const auto& output : graph_.steps[step].outputs()) AddOutput(stage, step, output, part);
    }
    return part;
  }

 private:
  // Of every place between two steps what a stage that ends there hands on, in bytes; negative: something of which the type or the
  // number of dimensions is not known.
  [[nodiscard]] std::vector<double> HandedOn() const {
    std::vector<double> change(graph_.steps.size() + 1);
    std::vector<int> unknown(graph_.steps.size() + 1);
    for (std::size_t i = 0; i < graph_.steps.size(); ++i)
      for (const auto& output : graph_.steps[i].outputs()) {
        const auto reader = flow_.LastReader(output);
        if (flow_.FromShapes(i) || !reader || *reader <= i) continue;
        const auto info = values_.find(output);
        const double bytes = info == values_.end() ? 0 : BytesOf(info->second);
        change[i + 1] += bytes;
        change[*reader + 1] -= bytes;
        unknown[i + 1] += info == values_.end() ? 1 : 0;
        unknown[*reader + 1] -= info == values_.end() ? 1 : 0;
      }
    double bytes = 0;
    int unknowns = 0;
    for (std::size_t i = 0; i < change.size(); ++i) {
      bytes += change[i];
      unknowns += unknown[i];
      change[i] = unknowns > 0 ? -1 : std::max(bytes, 0.0);  // sums of large numbers are not exact
    }
    return change;
  }
  // With one for each open dimension.
  [[nodiscard]] static double BytesOf(const ValueInfo& info) {
    double bytes = info.type == proto::BYTES ? 1 : static_cast<double>(proto::ElementSize(info.type));
    for (const std::int64_t size : info.shape) bytes *= static_cast<double>(std::max<std::int64_t>(size, 1));
    return bytes;
  }
  // Stages of at most so much memory, each as long as it can be, but for a quarter in which the best end is looked for.
  [[nodiscard]] absl::StatusOr<std::vector<StageRange>> Fill(Bytes most) const {
    std::vector<StageRange> stages;
    for (std::size_t begin = 0; begin < graph_.steps.size();) {
      TROUPE_ASSIGN_OR_RETURN(const std::size_t end, EndOf(begin, most));
      stages.push_back({begin, end});
      begin = end;
    }
    return stages;
  }
  [[nodiscard]] absl::StatusOr<std::size_t> EndOf(std::size_t begin, Bytes most) const {
    WeightSum sum(graph_, contents_);
    std::vector<Bytes> sums;  // after each step from `begin` on
    for (std::size_t i = begin; i < graph_.steps.size(); ++i) {
      Steps steps;
      if (!flow_.FromShapes(i)) flow_.AddWithShapes(i, steps);
      sum.Add(steps);
      if (sum.bytes() > most) break;
      sums.push_back(sum.bytes());
    }
    if (begin + sums.size() == graph_.steps.size()) return graph_.steps.size();
    std::optional<std::size_t> best;
    for (std::size_t end = begin + sums.size(); end > begin; --end) {
      if (best && sums[end - begin - 1].count() < sums.back().count() / 4 * 3) break;
      if (handed_on_[end] >= 0 && (!best || handed_on_[end] < handed_on_[*best])) best = end;
    }
    if (best) return *best;
    return absl::InvalidArgumentError(absl::StrCat(
        "the model cannot be divided into stages with at most ", FormatBytes(most),
        " of weights: ", StepLabel(graph_.steps[begin + sums.size()]),
        sums.empty() ? absl::StrCat(" alone has ", FormatBytes(sum.bytes()))
                     : " would begin a stage, and the shapes of values that are handed on to it are not "
                       "known"));
  }
  [[nodiscard]] Steps StepsOf(const StageRange& stage) const {
    Steps steps;
    for (std::size_t i = stage.begin; i < stage.end; ++i)
      if (!flow_.FromShapes(i)) flow_.AddWithShapes(i, steps);
    return steps;
  }
  [[nodiscard]] proto::TensorSpec SpecOf(const std::string& value) const {
    for (const auto& output : graph_.outputs)
      if (output.name() == value) return output;
    proto::TensorSpec spec;
    spec.set_name(value);
    const ValueInfo& info = values_.at(value);
    spec.set_type(info.type);
    for (const std::int64_t size : info.shape) spec.add_shape(info.bounded ? -1 : size);
    return spec;
  }
  // Those of the graph first, then what earlier stages made, in that order.
  void AddInputs(const StageRange& stage, const Steps& steps, Graph& part) const {
    absl::flat_hash_set<std::string> read;
    std::set<std::pair<std::size_t, std::string>> handed;
    for (const std::size_t step : steps)
      for (const auto& input : graph_.steps[step].inputs()) {
        const auto maker = flow_.MakerOf(input);
        if (maker && *maker < stage.begin && !flow_.FromShapes(*maker)) handed.emplace(*maker, input);
        read.insert(input);
      }
    for (const auto& input : graph_.inputs)
      if (read.contains(input.name())) part.inputs.push_back(input);
    for (const auto& [maker, value] : handed) part.inputs.push_back(SpecOf(value));
    for (const auto& input : part.inputs)
      part.open.AddInput(input, std::vector<std::string>(static_cast<std::size_t>(input.shape_size())));
  }
  void AddOutput(const StageRange& stage, std::size_t step, const std::string& output, Graph& part) const {
    if (output.empty() || flow_.FromShapes(step)) return;
    const auto reader = flow_.LastReader(output);
    if (IsOutput(graph_, output) || (reader && *reader >= stage.end)) part.outputs.push_back(SpecOf(output));
  }

  const Graph& graph_;
  const Contents contents_;
  const ValueFlow flow_;
  ValueInfos values_;
  std::vector<double> handed_on_;
};

// No stage produces such an output.
absl::Status CheckNoInputIsOutput(const Graph& graph) {
  for (const auto& input : graph.inputs)
    if (IsOutput(graph, input.name()))
      return absl::UnimplementedError(absl::StrCat(
          "'", input.name(),
          "' is an input and an output of the model, which is served in stages as no GPU can hold it "
          "whole; put an Identity between them"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DividedGraph> DivideGraph(Graph graph, const proto::StageBounds& bounds) {
  DividedGraph divided;
  if (bounds.any() && CouldTakeMoreThan(graph, bounds.above)) {
    Division division(graph);
    if (division.Whole() > bounds.above) {
      TROUPE_ASSIGN_OR_RETURN(const auto stages, division.Cut(bounds.most));
      if (stages.size() > proto::kMostStages)
        return absl::InvalidArgumentError(absl::StrCat(
            "the model would have ", stages.size(), " stages with at most ", FormatBytes(bounds.most),
            " of weights each, and ", proto::kMostStages, " are supported; use larger stages"));
      if (stages.size() > 1) {
        TROUPE_RETURN_IF_ERROR(CheckNoInputIsOutput(graph));
        for (const auto& stage : stages) divided.stages.push_back({division.Of(stage), {}});
      }
    }
  }
  if (divided.stages.empty()) {
    divided.stages.push_back({std::move(graph), {}});
    return divided;
  }
  for (const auto& output : graph.outputs) divided.model_outputs.push_back(output.name());
  AddLikelyInputs(graph, divided.stages);
  return divided;
}

}  // namespace troupe::gpu
