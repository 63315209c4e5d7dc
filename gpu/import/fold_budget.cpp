#include "gpu/import/fold_budget.hpp"

#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gpu/import/onnx_node.hpp"

namespace troupe::gpu {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

std::uint64_t Times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMost : product;
}
std::uint64_t Plus(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kMost : sum;
}

std::uint64_t Elements(std::span<const ValueInfo> values, std::size_t i) {
  return i < values.size() && values[i].type != proto::DATA_TYPE_UNSPECIFIED
             ? static_cast<std::uint64_t>(std::max<std::int64_t>(values[i].elements(), 0))
             : 0;
}

std::uint64_t Dimension(std::span<const ValueInfo> values, std::size_t i, std::size_t dimension) {
  if (i >= values.size() || dimension >= values[i].shape.size()) return 1;
  return static_cast<std::uint64_t>(std::max<std::int64_t>(values[i].shape[dimension], 1));
}

std::uint64_t AllElements(std::span<const ValueInfo> values) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum = Plus(sum, Elements(values, i));
  return sum;
}

// Elements of a pool's window; the whole input where the step does not tell.
std::uint64_t Window(const StepContext& context, std::span<const ValueInfo> in) {
  const auto kernel = context.Ints("kernel_shape");
  if (kernel.empty()) return Elements(in, 0);
  std::uint64_t window = 1;
  for (const std::int64_t size : kernel)
    window = Times(window, static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1)));
  return window;
}

// What the step does for each element that `AllElements` does not count.
std::uint64_t Products(const StepContext& context, std::span<const ValueInfo> in,
                       std::span<const ValueInfo> out) {
  const std::string& op = context.step.op();
  const std::uint64_t result = Elements(out, 0);
  // QLinearMatMul and QLinearConv have scale and zero point behind each tensor.
  const std::size_t weight = absl::StartsWith(op, "QLinear") ? 3 : 1;
  if (absl::StrContains(op, "MatMul")) {
    const std::size_t rank = in.empty() ? 0 : in[0].shape.size();
    return Times(result, rank == 0 ? 1 : Dimension(in, 0, rank - 1));
  }
  if (op == "Gemm") return Times(result, Dimension(in, 0, context.Int("transA", 0) != 0 ? 0 : 1));
  if (op == "ConvTranspose") return Times(Elements(in, 0), Elements(in, 1) / Dimension(in, 1, 0));
  if (absl::StrContains(op, "Conv")) return Times(result, Elements(in, weight) / Dimension(in, weight, 0));
  if (op == "LSTM" || op == "GRU" || op == "RNN")
    return Times(Times(Dimension(in, 0, 0), Dimension(in, 0, 1)), Plus(Elements(in, 1), Elements(in, 2)));
  if (op == "Einsum") {
    std::uint64_t product = 1;
    for (std::size_t i = 0; i < in.size(); ++i) product = Times(product, Elements(in, i));
    return product;
  }
  // Each query meets each key and each value, those of the cache too.
  if (op == "Attention") {
    const std::uint64_t keys =
        Plus(Elements(in, 1), Plus(Elements(in, 2), Plus(Elements(in, 4), Elements(in, 5))));
    return Times(Elements(in, 0), keys);
  }
  // A length that is a prime takes as many products as it has elements, squared.
  if (op == "DFT" || op == "STFT") return Times(result, std::max(Elements(in, 0), result));
  if (op == "NonMaxSuppression") return Times(Elements(in, 1), Dimension(in, 1, 2));
  if (op == "LRN")
    return Times(result, static_cast<std::uint64_t>(std::max<std::int64_t>(context.Int("size", 1), 1)));
  if (absl::EndsWith(op, "Pool") && !absl::StartsWith(op, "Global"))
    return Times(result, Window(context, in));
  return 0;
}

}  // namespace

std::uint64_t FoldOperations(const StepContext& context, std::span<const ValueInfo> in,
                             std::span<const ValueInfo> out) {
  // These read no element of their input.
  if (context.step.op() == "Shape" || context.step.op() == "Size") return AllElements(out);
  return Plus(Products(context, in, out), Plus(AllElements(in), AllElements(out)));
}

bool FoldBudget::Spend(const StepContext& context, std::span<const ValueInfo> in,
                       std::span<const ValueInfo> out) {
  const std::uint64_t operations = FoldOperations(context, in, out);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < out.size(); ++i)
    bytes = Plus(bytes, Times(Elements(out, i), ElementSize(out[i].type)));
  const bool enough =
      operations <= limits_.operations - operations_ && bytes <= limits_.bytes.count() - bytes_;
  if (enough) {
    operations_ += operations;
    bytes_ += bytes;
  } else if (stopped_.empty()) {
    stopped_ = absl::StrCat(StepLabel(context.step), " needs ", operations, " operations and ",
                            FormatBytes(Bytes(bytes)), ", and of the limits of ", limits_.operations,
                            " operations and ", FormatBytes(limits_.bytes), " there are ",
                            limits_.operations - operations_, " and ",
                            FormatBytes(Bytes(limits_.bytes.count() - bytes_)), " left");
  }
  return enough;
}

}  // namespace troupe::gpu
