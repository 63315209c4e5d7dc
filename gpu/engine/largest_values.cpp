#include "gpu/engine/largest_values.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "gpu/ops/convert.hpp"
#include "gpu/ops/layout.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {
namespace {

// Shape arithmetic is small; whatever is larger is data.
constexpr std::int64_t kMostElements = 1024;

// The input by which an operator's output grows.
struct Sizer {
  std::string_view op;
  std::size_t input;
};
constexpr Sizer kSizers[] = {{"ConstantOfShape", 0}, {"Expand", 1}, {"OneHot", 1}, {"Range", 1},
                             {"Reshape", 1},         {"Resize", 3}, {"Tile", 1}};

// An operator whose output grows with its inputs.
struct Growing {
  std::string_view op;
  std::uint32_t inputs;           // by which it grows, one bit each; the others have to be constants
  bool from_zero = false;         // it does only where no input is negative
  bool positive_divisor = false;  // and where input 1 is above 0
};
constexpr std::uint32_t kEveryInput = ~0U;
constexpr Growing kGrowing[] = {{"Add", 3},
                                {"Cast", 1},
                                {"Ceil", 1},
                                {"Concat", kEveryInput},
                                {"Div", 1, true, true},
                                {"Expand", 1},
                                {"Floor", 1},
                                {"Gather", 1},
                                {"Identity", 1},
                                {"Max", kEveryInput},
                                {"Min", kEveryInput},
                                {"Mul", 3, true},
                                {"ReduceMax", 1},
                                {"ReduceMin", 1},
                                {"ReduceProd", 1, true},
                                {"ReduceSum", 1},
                                {"Reshape", 1},
                                {"Slice", 1},
                                {"Squeeze", 1},
                                {"Sub", 1},
                                {"Unsqueeze", 1}};

bool ReadsShape(std::string_view op) {
  return op == "Shape" || op == "Size";
}

bool IsConstant(const ValueInfo& info) {
  return info.constant != nullptr && !info.bounded && info.layout.empty() && info.type != proto::BYTES;
}

// Whether every number is above `limit`, or at it.
bool AtLeast(const ValueInfo& info, double limit) {
  std::vector<double> values(static_cast<std::size_t>(info.elements()));
  ConvertElements(info.type, info.constant, proto::FP64, reinterpret_cast<std::byte*>(values.data()),
                  info.elements());
  return std::ranges::all_of(values, [limit](double value) { return value >= limit; });
}

bool GrowsBy(const Growing& rule, std::size_t input) {
  return input < 32 && ((rule.inputs >> input) & 1U) != 0;
}

bool Grows(const Growing& rule, std::span<const ValueInfo> in) {
  for (std::size_t i = 0; rule.from_zero && i < in.size(); ++i)
    if (GrowsBy(rule, i) && !AtLeast(in[i], 0)) return false;
  constexpr double kLeastDivisor = 1e-9;
  return !rule.positive_divisor || (in.size() > 1 && AtLeast(in[1], kLeastDivisor));
}

// A Range grows with its limit only where it counts upwards.
bool CountsUpwards(const StepContext& ctx, std::span<const ValueInfo> in) {
  return ctx.step.op() != "Range" || (in.size() > 2 && in[2].constant != nullptr && AtLeast(in[2], 0));
}

// Runs the step at the bounds; nothing where it makes another shape than `made`, or fails.
std::optional<AlignedBytes> Compute(const Operator& entry, const StepContext& ctx,
                                    std::span<const ValueInfo> in, const ValueInfo& made) {
  const auto out = entry.infer(ctx, in);
  if (!out.ok() || out->size() != 1 || out->front().shape != made.shape || out->front().bounded)
    return std::nullopt;
  const auto kernel = entry.make(ctx, in, *out);
  if (!kernel.ok()) return std::nullopt;
  AlignedBytes bytes(static_cast<std::size_t>(made.elements()) * CellSize(made.type));
  std::vector<TensorView> inputs;
  for (const ValueInfo& info : in)
    inputs.push_back({info.type, info.shape, const_cast<std::byte*>(info.constant)});  // kernels read inputs
  std::vector<TensorView> outputs = {{made.type, made.shape, bytes.data()}};
  const AlignedBytes scratch((*kernel)->scratch().count());
  if (!(*kernel)->Run(inputs, outputs, scratch.data()).ok()) return std::nullopt;
  return bytes;
}

}  // namespace

std::optional<std::vector<ValueInfo>> LargestValues::ForShapes(const StepContext& ctx,
                                                               std::span<const int> ids,
                                                               std::span<const ValueInfo> infos) const {
  const auto* const sizer = std::ranges::find(kSizers, std::string_view(ctx.step.op()), &Sizer::op);
  if (sizer == std::end(kSizers) || sizer->input >= ids.size()) return std::nullopt;
  const auto largest = values_.find(ids[sizer->input]);
  if (largest == values_.end() || !CountsUpwards(ctx, infos)) return std::nullopt;
  std::vector<ValueInfo> known(infos.begin(), infos.end());
  known[sizer->input].constant = largest->second.data();
  known[sizer->input].bounded = false;
  return known;
}

std::optional<std::vector<ValueInfo>> LargestValues::AtBounds(const StepContext& ctx,
                                                              std::span<const int> ids,
                                                              std::span<const ValueInfo> in) const {
  std::vector<ValueInfo> known(in.begin(), in.end());
  const std::string_view op = ctx.step.op();
  const auto* const rule = std::ranges::find(kGrowing, op, &Growing::op);
  if (!ReadsShape(op) && rule == std::end(kGrowing)) return std::nullopt;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!ReadsShape(op) && !in[i].absent() && !IsConstant(in[i])) {
      const auto largest = values_.find(ids[i]);
      if (largest == values_.end() || !GrowsBy(*rule, i)) return std::nullopt;
      known[i].constant = largest->second.data();
    }
    known[i].bounded = false;
  }
  if (!ReadsShape(op) && !Grows(*rule, known)) return std::nullopt;
  return known;
}

void LargestValues::Note(const Operator& entry, const StepContext& ctx, std::span<const int> ids,
                         std::span<const ValueInfo> in, const ValueInfo& made, int id) {
  if (!made.bounded || made.type == proto::BYTES || made.elements() > kMostElements) return;
  const auto known = AtBounds(ctx, ids, in);
  if (!known) return;
  if (auto bytes = Compute(entry, ctx, *known, made)) values_.emplace(id, *std::move(bytes));
}

}  // namespace troupe::gpu
