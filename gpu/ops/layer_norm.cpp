// LayerNormalization, RMSNormalization, SimplifiedLayerNormalization and MeanVarianceNormalization.
#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/layer_norm_rows.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/parallel_ranges.hpp"
#include "gpu/ops/reduce_loop.hpp"
#include "gpu/ops/table_limits.hpp"

namespace troupe::gpu {
namespace {

absl::StatusOr<std::int64_t> NormAxis(const StepContext& ctx, Infos in) {
  return NormalizeAxis(ctx, ctx.Int("axis", -1), in[0].shape.size());
}

// Scale and bias have one element for each of a row (dimensions of 1 in front do not matter). `inputs`, `outputs`: most
// of them.
Inferred InferNorm(const StepContext& ctx, Infos in, std::size_t inputs, int outputs) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, inputs, kFloatTypes));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis, NormAxis(ctx, in));
  const std::int64_t row = Product(std::span(in[0].shape).subspan(static_cast<std::size_t>(axis)));
  for (std::size_t i = 1; i < in.size(); ++i) {
    if (in[i].type != in[0].type) return ctx.Error("scale and bias must have the input's type");
    if (in[i].elements() != row)
      return ctx.Error("scale and bias must have the shape of the normalised axes");
  }
  TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, OneValue(ctx, in[0].type, in[0].shape));
  Shape stats(in[0].shape.size(), 1);
  std::copy(in[0].shape.begin(), in[0].shape.begin() + axis, stats.begin());
  const proto::DataType stash = FromOnnxType(ctx.Int("stash_type", 1));
  if (!Has(kFloatTypes, stash)) return ctx.Error("stash_type must be a floating type");
  for (int i = 1; i < std::min(ctx.step.outputs_size(), outputs); ++i) {
    TROUPE_ASSIGN_OR_RETURN(ValueInfo stat, Value(ctx, stash, stats));
    out.push_back(std::move(stat));
  }
  return out;
}

Inferred InferLayerNorm(const StepContext& ctx, Infos in) {
  return InferNorm(ctx, in, 3, 3);
}

void NormalizeRow(LayerNormRow<double>& row) {
  double sum = 0;
  for (std::int64_t i = 0; i < row.n; ++i) sum += row.in[i];
  row.mean = sum / static_cast<double>(row.n);
  double squares = 0;
  for (std::int64_t i = 0; i < row.n; ++i) squares += (row.in[i] - row.mean) * (row.in[i] - row.mean);
  row.inverse = 1 / std::sqrt(squares / static_cast<double>(row.n) + row.epsilon);
  for (std::int64_t i = 0; i < row.n; ++i) {
    row.out[i] =
        (row.in[i] - row.mean) * row.inverse * row.scale[i] + (row.bias != nullptr ? row.bias[i] : 0);
  }
}

void StoreStat(Out out, std::size_t index, std::int64_t row, double value) {
  if (index >= out.size() || out[index].data == nullptr) return;
  if (out[index].type == proto::FP64) {
    MutableData<double>(out[index])[row] = value;
  } else {
    MutableData<float>(out[index])[row] = static_cast<float>(value);
  }
}

template <class T, class F>
void NormalizeRows(In in, Out out, std::int64_t n, T epsilon, F normalize) {
  const std::int64_t rows = n == 0 ? 0 : Elements(in[0]) / n;
  const T* bias = Present(in, 2) ? Data<T>(in[2]) : nullptr;
  ParallelRanges(rows, n, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      LayerNormRow<T> row{
          n, Data<T>(in[0]) + r * n, Data<T>(in[1]), bias, MutableData<T>(out[0]) + r * n, epsilon, 0, 0};
      normalize(row);
      StoreStat(out, 1, r, static_cast<double>(row.mean));
      StoreStat(out, 2, r, static_cast<double>(row.inverse));
    }
  });
}

Made MakeLayerNorm(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis, NormAxis(ctx, in));
  const std::int64_t n = Product(std::span(in[0].shape).subspan(static_cast<std::size_t>(axis)));
  const float epsilon = ctx.Float("epsilon", 1e-5F);
  const LayerNormFunction fast = FindLayerNormRow();
  return MakeKernel(
      [=](In in, Out out, std::byte*) {
        if (in[0].type == proto::FP32) {
          NormalizeRows<float>(in, out, n, epsilon, fast);
        } else {
          NormalizeRows<double>(in, out, n, epsilon, &NormalizeRow);
        }
        return absl::OkStatus();
      },
      Bytes(0), 0);
}

// --- RMSNormalization: x / sqrt(mean of squares) * scale, over the axes from `axis` on

Inferred InferRmsNorm(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kFloatTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kFloatTypes));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis, NormAxis(ctx, in));
  const Shape row(in[0].shape.begin() + axis, in[0].shape.end());
  const auto both = BroadcastShapes(row, in[1].shape);
  if (!both.ok() || *both != row) {
    return ctx.Error(absl::StrCat("scale ", FormatShape(in[1].shape), " does not broadcast to ",
                                  FormatShape(row), ", the normalised axes"));
  }
  if (!Has(kFloatTypes, FromOnnxType(ctx.Int("stash_type", 1))))
    return ctx.Error("stash_type must be a floating type");
  return OneValue(ctx, in[1].type, in[0].shape);
}

// `scale_at`: the place of the scale of each of the `n` elements of a row; empty: its own place.
template <class T>
void NormalizeByRms(In in, Out out, std::int64_t n, const std::vector<std::int64_t>& scale_at,
                    float epsilon) {
  const T* scale = Data<T>(in[1]);
  ParallelRanges(n == 0 ? 0 : Elements(in[0]) / n, 2 * n, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const T* x = Data<T>(in[0]) + r * n;
      T* y = MutableData<T>(out[0]) + r * n;
      double squares = 0;
      for (std::int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      const T inverse = static_cast<T>(1 / std::sqrt(squares / static_cast<double>(n) + epsilon));
      for (std::int64_t i = 0; i < n && scale_at.empty(); ++i) y[i] = x[i] * inverse * scale[i];
      for (std::size_t i = 0; i < scale_at.size(); ++i) y[i] = x[i] * inverse * scale[scale_at[i]];
      StoreStat(out, 1, r, static_cast<double>(inverse));
    }
  });
}

Made MakeRmsNorm(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis, NormAxis(ctx, in));
  const Shape row(in[0].shape.begin() + axis, in[0].shape.end());
  const std::int64_t n = Product(row);
  const Shape own = RowMajorStrides(in[1].shape);
  std::vector<std::int64_t> scale_at;
  if (in[1].elements() != n) {
    if (n > kMaxTabulated) return ctx.Error("a row with a stretched scale is longer than 2^24");
    scale_at.assign(static_cast<std::size_t>(n), 0);
  }
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(scale_at.size()); ++i) {
    std::int64_t rest = i;
    for (std::size_t d = row.size(); d-- > 0; rest /= row[d]) {
      const std::size_t lead = row.size() - own.size();
      if (d >= lead && in[1].shape[d - lead] != 1)
        scale_at[static_cast<std::size_t>(i)] += rest % row[d] * own[d - lead];
    }
  }
  return MakeKernel(
      [n, scale_at = std::move(scale_at), epsilon = ctx.Float("epsilon", 1e-5F)](In in, Out out, std::byte*) {
        if (in[0].type == proto::FP32) {
          NormalizeByRms<float>(in, out, n, scale_at, epsilon);
        } else {
          NormalizeByRms<double>(in, out, n, scale_at, epsilon);
        }
        return absl::OkStatus();
      },
      Bytes(0), 0);
}

// Input and scale may have different types; both are computed in the wider one.
Made MakeRmsNormWide(const StepContext& ctx, Infos in, Infos out) {
  const bool wide = in[0].type == proto::FP64 || in[1].type == proto::FP64;
  const proto::DataType type = wide ? proto::FP64 : proto::FP32;
  return MakeConverted(&MakeRmsNorm, ctx, in, out, std::array{type, type}, std::array{type});
}

// --- SimplifiedLayerNormalization: the same with a scale as long as a row, as optimised files have it in the default
// domain

Inferred InferSimplified(const StepContext& ctx, Infos in) {
  return InferNorm(ctx, in, 2, 2);
}

// --- MeanVarianceNormalization: (x - mean) / sqrt(variance) over some axes
// ----------------------------------------------

absl::StatusOr<Shape> MvnAxes(const StepContext& ctx, Infos in) {
  Shape axes = ctx.Ints("axes");
  if (axes.empty()) axes = {0, 2, 3};
  return NormalizeAxes(ctx, std::move(axes), in[0].shape.size());
}

Inferred InferMvn(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, TypesOf({proto::FP32, proto::FP16, proto::BF16})));
  TROUPE_RETURN_IF_ERROR(MvnAxes(ctx, in).status());
  return OneValue(ctx, in[0].type, in[0].shape);
}

Made MakeMvn(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Shape axes, MvnAxes(ctx, in));
  const ReduceLoop loop(in[0].shape, axes);
  return MakeKernel([loop](In in, Out out, std::byte*) {
    const float* data = Data<float>(in[0]);
    const std::int64_t kept = loop.kept_count * (loop.inner_reduced ? 1 : loop.inner.size);
    const std::int64_t run = loop.inner_reduced ? loop.inner.size : 1;
    for (std::int64_t k = 0; k < kept; ++k) {
      const std::int64_t base = loop.inner_reduced
                                    ? OffsetOf(loop.kept, k)
                                    : OffsetOf(loop.kept, k / loop.inner.size) + k % loop.inner.size;
      double sum = 0;
      double squares = 0;
      for (std::int64_t r = 0; r < loop.reduced_count; ++r) {
        const float* row = data + base + OffsetOf(loop.reduced, r);
        for (std::int64_t i = 0; i < run; ++i) {
          sum += row[i];
          squares += static_cast<double>(row[i]) * row[i];
        }
      }
      const double mean = sum / static_cast<double>(loop.folded);
      const double deviation =
          std::sqrt(std::max(squares / static_cast<double>(loop.folded) - mean * mean, 0.0));
      for (std::int64_t r = 0; r < loop.reduced_count; ++r) {
        const std::int64_t offset = base + OffsetOf(loop.reduced, r);
        for (std::int64_t i = 0; i < run; ++i) {
          MutableData<float>(out[0])[offset + i] =
              static_cast<float>((data[offset + i] - mean) / (deviation + 1e-9));
        }
      }
    }
    return absl::OkStatus();
  });
}

constexpr Operator kOperators[] = {
    // ONNX has it from 17 on; optimised files have it at every opset.
    {.name = "LayerNormalization",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferLayerNorm,
     .make = &FloatWidened<&MakeLayerNorm>,
     .types = kFloatTypes},
    {.name = "RMSNormalization",
     .min_opset = 23,
     .max_opset = kNewestOpset,
     .infer = &InferRmsNorm,
     .make = &MakeRmsNormWide,
     .types = kFloatTypes},
    {.name = "SimplifiedLayerNormalization",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferSimplified,
     .make = &FloatWidened<&MakeRmsNorm>,
     .types = kFloatTypes},
    {.name = "MeanVarianceNormalization",
     .min_opset = 9,
     .max_opset = kNewestOpset,
     .infer = &InferMvn,
     .make = &FloatWidened<&MakeMvn>,
     .types = TypesOf({proto::FP32, proto::FP16, proto::BF16})},
};

}  // namespace

std::span<const Operator> LayerNormOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
