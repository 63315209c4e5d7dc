// GroupNormalization (opset 18, 21): each group of channels of each image is brought to mean 0 and variance 1.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/parallel_ranges.hpp"

namespace troupe::gpu {
namespace {

struct Grouping {
  std::int64_t groups = 1;
  std::int64_t channels = 1;  // of one group
  std::int64_t plane = 1;     // elements of one channel
  bool per_channel = true;    // scale and bias: one for each channel (opset 21), or one for each group
};

absl::StatusOr<Grouping> ReadGrouping(const StepContext& ctx, Infos in) {
  const Shape& shape = in[0].shape;
  if (shape.size() < 2) return ctx.Error("the input needs a batch and a channel dimension");
  Grouping grouping;
  grouping.groups = ctx.Int("num_groups", 0);
  if (grouping.groups < 1 || shape[1] % grouping.groups != 0) {
    return ctx.Error(
        absl::StrCat("num_groups ", grouping.groups, " does not divide ", shape[1], " channels"));
  }
  grouping.channels = shape[1] / grouping.groups;
  grouping.plane = Product(std::span(shape).subspan(2));
  grouping.per_channel = ctx.opset >= 21;
  return grouping;
}

Inferred InferGroupNorm(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 3, 3, kFloatTypes));
  TROUPE_ASSIGN_OR_RETURN(const Grouping grouping, ReadGrouping(ctx, in));
  const std::int64_t each = grouping.per_channel ? in[0].shape[1] : grouping.groups;
  for (std::size_t i = 1; i < 3; ++i) {
    if (in[i].type != in[0].type) return ctx.Error("scale and bias must have the input's type");
    if (in[i].shape != Shape{each}) {
      return ctx.Error(absl::StrCat("input ", i, " has shape ", FormatShape(in[i].shape), ", wants [", each,
                                    "] at opset ", ctx.opset));
    }
  }
  return OneValue(ctx, in[0].type, in[0].shape);
}

template <class T>
void NormalizeGroup(const Grouping& g, const T* in, const T* scale, const T* bias, T epsilon, T* out) {
  const std::int64_t n = g.channels * g.plane;
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(in[i]);
  const double mean = sum / static_cast<double>(n);
  double squares = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double away = static_cast<double>(in[i]) - mean;
    squares += away * away;
  }
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(epsilon));
  for (std::int64_t c = 0; c < g.channels; ++c) {
    const std::int64_t at = g.per_channel ? c : 0;
    const T factor = static_cast<T>(inverse * static_cast<double>(scale[at]));
    const T shift =
        static_cast<T>(static_cast<double>(bias[at]) - mean * inverse * static_cast<double>(scale[at]));
    for (std::int64_t i = c * g.plane; i < (c + 1) * g.plane; ++i) out[i] = in[i] * factor + shift;
  }
}

template <class T>
Made MakeGroupNormOf(const Grouping& g, float epsilon) {
  return MakeKernel(
      [g, epsilon](In in, Out out, std::byte*) {
        const std::int64_t n = g.channels * g.plane;
        const std::int64_t groups = n == 0 ? 0 : Elements(in[0]) / n;
        ParallelRanges(groups, 3 * n, [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t i = first; i < last; ++i) {
            const std::int64_t parameter = i % g.groups * (g.per_channel ? g.channels : 1);
            NormalizeGroup<T>(g, Data<T>(in[0]) + i * n, Data<T>(in[1]) + parameter,
                              Data<T>(in[2]) + parameter, static_cast<T>(epsilon),
                              MutableData<T>(out[0]) + i * n);
          }
        });
        return absl::OkStatus();
      },
      Bytes(0), 0);
}

Made MakeGroupNorm(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Grouping grouping, ReadGrouping(ctx, in));
  const float epsilon = ctx.Float("epsilon", 1e-5F);
  return in[0].type == proto::FP64 ? MakeGroupNormOf<double>(grouping, epsilon)
                                   : MakeGroupNormOf<float>(grouping, epsilon);
}

constexpr Operator kOperators[] = {
    {.name = "GroupNormalization",
     .min_opset = 18,
     .max_opset = kNewestOpset,
     .infer = &InferGroupNorm,
     .make = &FloatWidened<&MakeGroupNorm>,
     .types = kFloatTypes},
};

}  // namespace

std::span<const Operator> GroupNormOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
