// y = m * x + a per channel, in whatever form exporters write it, becomes part of the convolution or
// normalisation before.
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "gpu/import/passes.hpp"

namespace troupe::gpu {
namespace {

struct Affine {
  std::vector<double> scale;  // one per channel
  std::vector<double> shift;
};

std::vector<float> Floats(const Constant& constant) {
  std::vector<float> values(constant.data->size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), constant.data->data(), values.size() * sizeof(float));
  return values;
}

Constant FromFloats(std::vector<std::int64_t> shape, const std::vector<float>& values) {
  return {proto::FP32, std::move(shape), HoldBytes(values.data(), values.size() * sizeof(float))};
}

bool AllFinite(const Affine& affine) {
  for (double m : affine.scale)
    if (!std::isfinite(m)) return false;
  for (double a : affine.shift)
    if (!std::isfinite(a)) return false;
  return true;
}

class Folder {
 public:
  Folder(Graph& graph, const ValueInfos& values) : graph_(graph), values_(values), uses_(CountUses(graph)) {}

  void Run() {
    std::vector<proto::Step> left;
    for (proto::Step& step : graph_.steps) {
      if (!FoldInto(step, left)) {
        if (step.outputs_size() > 0) producers_[step.outputs(0)] = left.size();
        left.push_back(std::move(step));
      }
    }
    graph_.steps = std::move(left);
  }

 private:
  const Constant* Find(const proto::Step& step, int input) const {
    if (input >= step.inputs_size()) return nullptr;
    const auto constant = graph_.constants.find(step.inputs(input));
    return constant == graph_.constants.end() || constant->second.type != proto::FP32 ? nullptr
                                                                                      : &constant->second;
  }

  // Folds `step` into the step that made its input, when that is possible.
  bool FoldInto(const proto::Step& step, std::vector<proto::Step>& left) {
    const int data = DataInput(step);
    if (data < 0 || step.outputs_size() != 1 || uses_[step.inputs(data)] != 1) return false;
    const auto found = producers_.find(step.inputs(data));
    if (found == producers_.end()) return false;
    proto::Step& producer = left[found->second];
    const std::int64_t channels = Channels(producer);
    if (channels < 0 || !producer.activation().empty()) return false;
    const std::optional<Affine> affine = AffineOf(step, data, channels, Rank(producer));
    if (!affine || !AllFinite(*affine)) return false;
    Apply(producer, *affine);
    producers_.erase(found);
    *producer.mutable_outputs(0) = step.outputs(0);
    producers_[step.outputs(0)] = static_cast<std::size_t>(&producer - left.data());
    return true;
  }

  // Which input of `step` is transformed by the constants in the others; -1 when the step is not affine.
  int DataInput(const proto::Step& step) const {
    if (step.op() == "BatchNormalization") return 0;
    if (step.inputs_size() != 2 || !step.activation().empty()) return -1;
    const bool first = Find(step, 0) != nullptr;
    const bool second = Find(step, 1) != nullptr;
    if (second && !first &&
        (step.op() == "Mul" || step.op() == "Add" || step.op() == "Sub" || step.op() == "Div"))
      return 0;
    if (first && !second && (step.op() == "Mul" || step.op() == "Add")) return 1;
    return -1;
  }

  // Channels of a producer that can take an affine step; -1: it cannot.
  std::int64_t Channels(const proto::Step& producer) const {
    if (producer.outputs_size() != 1) return -1;
    if (producer.op() == "Conv" && producer.inputs_size() <= 3) {
      const Constant* weight = Find(producer, 1);
      const bool biased = producer.inputs_size() == 3 && !producer.inputs(2).empty();
      const Constant* bias = biased ? Find(producer, 2) : nullptr;
      if (weight == nullptr || weight->shape.size() < 3 || weight->shape[0] == 0 ||
          (biased && bias == nullptr))
        return -1;
      if (bias != nullptr && bias->shape != Shape{weight->shape[0]}) return -1;
      return weight->shape[0];
    }
    return producer.op() == "BatchNormalization" ? Normalised(producer) : -1;
  }

  // Channels of a BatchNormalization in inference whose four parameters are constant vectors of one length,
  // or -1.
  std::int64_t Normalised(const proto::Step& step) const {
    const StepContext context{step, graph_.opset};
    if (step.inputs_size() != 5 || step.outputs_size() != 1 || context.Int("training_mode", 0) != 0)
      return -1;
    if (context.Int("spatial", 1) != 1) return -1;
    std::int64_t channels = -1;
    for (int i = 1; i < 5; ++i) {
      const Constant* parameter = Find(step, i);
      if (parameter == nullptr || parameter->shape.size() != 1) return -1;
      if (channels >= 0 && parameter->shape[0] != channels) return -1;
      channels = parameter->shape[0];
    }
    return channels;
  }

  // Dimensions of what `producer` makes; 0: unknown.
  std::size_t Rank(const proto::Step& producer) const {
    if (producer.op() == "Conv") return Find(producer, 1)->shape.size();
    const auto known = values_.find(producer.outputs(0));
    return known == values_.end() ? 0 : known->second.shape.size();
  }

  std::optional<Affine> AffineOf(const proto::Step& step, int data, std::int64_t channels,
                                 std::size_t rank) const {
    Affine affine{std::vector<double>(static_cast<std::size_t>(channels), 1.0),
                  std::vector<double>(static_cast<std::size_t>(channels), 0.0)};
    if (step.op() == "BatchNormalization") {
      if (Normalised(step) != channels) return std::nullopt;
      const double epsilon = StepContext{step, graph_.opset}.Float("epsilon", 1e-5F);
      const auto scale = Floats(*Find(step, 1)), bias = Floats(*Find(step, 2)), mean = Floats(*Find(step, 3)),
                 variance = Floats(*Find(step, 4));
      for (std::size_t c = 0; c < scale.size(); ++c) {
        affine.scale[c] = scale[c] / std::sqrt(static_cast<double>(variance[c]) + epsilon);
        affine.shift[c] = bias[c] - mean[c] * affine.scale[c];
      }
      return affine;
    }
    const Constant& operand = *Find(step, 1 - data);
    const std::optional<bool> each = PerChannel(operand.shape, channels, rank);
    if (!each) return std::nullopt;
    const std::vector<float> values = Floats(operand);
    for (std::size_t c = 0; c < affine.scale.size(); ++c) {
      const double value = values[*each ? c : 0];
      if (step.op() == "Mul") affine.scale[c] = value;
      if (step.op() == "Div") affine.scale[c] = 1.0 / value;
      if (step.op() == "Add") affine.shift[c] = value;
      if (step.op() == "Sub") affine.shift[c] = -value;
    }
    return affine;
  }

  // How a constant of `shape` meets [batch, channels, ...] of `rank` dimensions: one value per channel
  // (true), one for all (false), or in no such way.
  static std::optional<bool> PerChannel(const Shape& shape, std::int64_t channels, std::size_t rank) {
    if (rank < 2 || shape.size() > rank) return std::nullopt;
    bool each = false;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == 1) continue;
      if (i + rank - shape.size() != 1 || shape[i] != channels) return std::nullopt;
      each = true;
    }
    return each;
  }

  void Apply(proto::Step& producer, const Affine& affine) {
    const bool conv = producer.op() == "Conv";
    const int bias_input = 2;
    const int scaled_input = 1;
    std::vector<float> scaled = Floats(*Find(producer, scaled_input));
    const std::size_t channels = affine.scale.size();
    const std::size_t each = scaled.size() / channels;
    for (std::size_t i = 0; i < scaled.size(); ++i)
      scaled[i] = static_cast<float>(scaled[i] * affine.scale[i / each]);
    std::vector<float> bias(channels, 0.0F);
    if (const Constant* old = Find(producer, bias_input); old != nullptr) bias = Floats(*old);
    for (std::size_t c = 0; c < channels; ++c)
      bias[c] = static_cast<float>(bias[c] * affine.scale[c] + affine.shift[c]);
    const Shape shape = Find(producer, scaled_input)->shape;
    while (producer.inputs_size() <= bias_input) producer.add_inputs();
    Replace(*producer.mutable_inputs(scaled_input), FromFloats(shape, scaled), producer,
            conv ? "/weight" : "/scale");
    Replace(*producer.mutable_inputs(bias_input), FromFloats({static_cast<std::int64_t>(channels)}, bias),
            producer, "/bias");
  }

  // A constant may be shared with other steps, so the changed one gets a name of its own; what this pass
  // named, only the one step reads.
  void Replace(std::string& input, Constant constant, const proto::Step& step, const std::string& suffix) {
    if (!ours_.contains(input)) {
      std::string name = absl::StrCat(step.name(), suffix);
      while (graph_.constants.contains(name) || values_.contains(name) || producers_.contains(name))
        name += "'";
      ours_.insert(name);
      input = std::move(name);
    }
    graph_.constants.insert_or_assign(input, std::move(constant));
  }

  Graph& graph_;
  const ValueInfos& values_;
  UseCounts uses_;
  absl::flat_hash_map<std::string, std::size_t>
      producers_;  // of values, as places among the steps that are left
  absl::flat_hash_set<std::string> ours_;
};

}  // namespace

void FoldAffine(Graph& graph, const ValueInfos& values) {
  Folder(graph, values).Run();
}

}  // namespace troupe::gpu
