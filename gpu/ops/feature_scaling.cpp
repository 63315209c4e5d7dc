// What ai.onnx.ml does to features before a model: Scaler, Normalizer, Imputer, Binarizer, FeatureVectorizer.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gpu/ops/attributes.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/feature_rows.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {
namespace {

// Computes in FP32 or FP64; the output is FP32.
template <MakeFunction kFloat, MakeFunction kDouble>
Made MakeToFloat(const StepContext& ctx, Infos in, Infos out) {
  const proto::DataType type = FeatureWideType(in[0].type);
  const std::vector<proto::DataType> types(in.size(), type);
  return MakeConverted(type == proto::FP32 ? kFloat : kDouble, ctx, in, out, types, {&type, 1});
}

// One value for all features, or one for each.
absl::Status WantPerFeature(const StepContext& ctx, const char* name, std::size_t have,
                            const FeatureRows& rows) {
  if (have == 1 || static_cast<std::int64_t>(have) == rows.features) return absl::OkStatus();
  return ctx.Error(
      absl::StrCat("attribute '", name, "' has ", have, " values, expected 1 or ", rows.features));
}

// --- Scaler

Inferred InferScaler(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const FeatureRows rows, FeatureRowsOf(ctx, in));
  for (const char* name : {"offset", "scale"})
    TROUPE_RETURN_IF_ERROR(WantPerFeature(ctx, name, FloatList(ctx, name).size(), rows));
  return OneValue(ctx, proto::FP32, in[0].shape);
}

template <class T>
Made MakeScaler(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const FeatureRows rows, FeatureRowsOf(ctx, in));
  std::vector<T> offset(static_cast<std::size_t>(rows.features));
  std::vector<T> scale(offset.size());
  const auto offsets = FloatList(ctx, "offset");
  const auto scales = FloatList(ctx, "scale");
  for (std::size_t i = 0; i < offset.size(); ++i) {
    offset[i] = offsets[offsets.size() == 1 ? 0 : i];
    scale[i] = scales[scales.size() == 1 ? 0 : i];
  }
  return MakeKernel([rows, offset = std::move(offset), scale = std::move(scale)](In in, Out out, std::byte*) {
    const T* x = Data<T>(in[0]);
    T* y = MutableData<T>(out[0]);
    for (std::int64_t row = 0; row < rows.rows; ++row)
      for (std::size_t i = 0; i < offset.size(); ++i) *y++ = (*x++ - offset[i]) * scale[i];
    return absl::OkStatus();
  });
}

// --- Normalizer

enum class Norm : std::uint8_t { kMax, kL1, kL2 };

absl::StatusOr<Norm> NormOf(const StepContext& ctx) {
  constexpr std::string_view kNames[] = {"MAX", "L1", "L2"};
  const std::string name = ctx.Text("norm", "MAX");
  const auto* found = std::ranges::find(kNames, name);
  if (found != std::end(kNames)) return static_cast<Norm>(found - kNames);
  return ctx.Error(absl::StrCat("norm '", name, "' is not known"));
}

Inferred InferNormalizer(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(FeatureRowsOf(ctx, in).status());
  TROUPE_RETURN_IF_ERROR(NormOf(ctx).status());
  return OneValue(ctx, proto::FP32, in[0].shape);
}

template <class T>
T Length(Norm norm, std::span<const T> row) {
  T length = norm == Norm::kMax && !row.empty() ? row[0] : T(0);
  for (T value : row) {
    if (norm == Norm::kMax) length = std::max(length, value);
    if (norm == Norm::kL1) length += std::abs(value);
    if (norm == Norm::kL2) length += value * value;
  }
  return norm == Norm::kL2 ? std::sqrt(length) : length;
}

template <class T>
Made MakeNormalizer(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const FeatureRows rows, FeatureRowsOf(ctx, in));
  TROUPE_ASSIGN_OR_RETURN(const Norm norm, NormOf(ctx));
  return MakeKernel([rows, norm](In in, Out out, std::byte*) {
    const auto features = static_cast<std::size_t>(rows.features);
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      const std::span<const T> x(Data<T>(in[0]) + row * rows.features, features);
      T* y = MutableData<T>(out[0]) + row * rows.features;
      const T length = Length(norm, x);
      // A row of zeros stays one.
      for (std::size_t i = 0; i < features; ++i) y[i] = length == 0 ? x[i] : x[i] / length;
    }
    return absl::OkStatus();
  });
}

// --- Imputer

bool IsInteger(proto::DataType type) {
  return type == proto::INT32 || type == proto::INT64;
}

Inferred InferImputer(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const FeatureRows rows, FeatureRowsOf(ctx, in));
  const bool integer = IsInteger(in[0].type);
  const std::size_t floats = FloatList(ctx, "imputed_value_floats").size();
  const std::size_t ints = IntList(ctx, "imputed_value_int64s").size();
  if ((integer ? floats : ints) != 0)
    return ctx.Error(absl::StrCat("imputes values of another type than its input, which is ",
                                  proto::DataType_Name(in[0].type)));
  TROUPE_RETURN_IF_ERROR(WantPerFeature(ctx, integer ? "imputed_value_int64s" : "imputed_value_floats",
                                        integer ? ints : floats, rows));
  return OneValue(ctx, in[0].type, in[0].shape);
}

template <class T, class Values>
Made MakeImputerOf(const FeatureRows& rows, T replaced, const Values& values) {
  return MakeKernel(
      [rows, replaced, imputed = std::vector<T>(values.begin(), values.end())](In in, Out out, std::byte*) {
        const T* x = Data<T>(in[0]);
        T* y = MutableData<T>(out[0]);
        const bool nan = replaced != replaced;
        for (std::int64_t row = 0; row < rows.rows; ++row) {
          for (std::int64_t i = 0; i < rows.features; ++i, ++x, ++y) {
            const bool missing = nan ? *x != *x : *x == replaced;
            *y = missing ? imputed[imputed.size() == 1 ? 0 : static_cast<std::size_t>(i)] : *x;
          }
        }
        return absl::OkStatus();
      });
}

Made MakeImputerWide(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const FeatureRows rows, FeatureRowsOf(ctx, in));
  const auto floats = FloatList(ctx, "imputed_value_floats");
  const float replaced = ctx.Float("replaced_value_float", 0);
  if (in[0].type == proto::INT64)
    return MakeImputerOf(rows, ctx.Int("replaced_value_int64", 0), IntList(ctx, "imputed_value_int64s"));
  if (in[0].type == proto::FP64) return MakeImputerOf(rows, static_cast<double>(replaced), floats);
  return MakeImputerOf(rows, replaced, floats);
}

Made MakeImputer(const StepContext& ctx, Infos in, Infos out) {
  const proto::DataType type = in[0].type == proto::INT32 ? proto::INT64 : in[0].type;
  return MakeConverted(&MakeImputerWide, ctx, in, out, {&type, 1}, {&type, 1});
}

// --- Binarizer

Inferred InferBinarizer(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kFeatureTypes));
  return OneValue(ctx, in[0].type, in[0].shape);
}

Made MakeBinarizer(const StepContext& ctx, Infos in, Infos) {
  return MakeKernel(
      [threshold = ctx.Float("threshold", 0), count = in[0].elements()](In in, Out out, std::byte*) {
        ForWideType(in[0].type, [&](auto zero) {
          using T = decltype(zero);
          const T* x = Data<T>(in[0]);
          T* y = MutableData<T>(out[0]);
          for (std::int64_t i = 0; i < count; ++i)
            y[i] = static_cast<double>(x[i]) > static_cast<double>(threshold) ? T(1) : T(0);
          return 0;
        });
        return absl::OkStatus();
      });
}

// --- FeatureVectorizer: columns of several inputs beside each other

absl::StatusOr<std::vector<FeatureRows>> VectorizerParts(const StepContext& ctx, Infos in) {
  if (in.empty()) return ctx.Error("has no inputs");
  std::vector<FeatureRows> parts;
  for (std::size_t i = 0; i < in.size(); ++i) {
    TROUPE_ASSIGN_OR_RETURN(const FeatureRows part, FeatureRowsOf(ctx, in.subspan(i, 1)));
    if (in[i].type != in[0].type || (!parts.empty() && part.rows != parts[0].rows))
      return ctx.Error(absl::StrCat("input ", i, " has another type or other rows than input 0"));
    parts.push_back(part);
  }
  const auto dimensions = IntList(ctx, "inputdimensions");
  TROUPE_RETURN_IF_ERROR(WantLength(ctx, "inputdimensions", dimensions.size(), in.size()));
  for (std::size_t i = 0; i < in.size(); ++i)
    if (dimensions[i] != parts[i].features)
      return ctx.Error(absl::StrCat("input ", i, " has ", parts[i].features,
                                    " features, 'inputdimensions' says ", dimensions[i]));
  return parts;
}

Inferred InferVectorizer(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const auto parts, VectorizerParts(ctx, in));
  std::int64_t features = 0;
  for (const FeatureRows& part : parts) {
    features += part.features;
    if (auto fits = CountElements(Shape{features}); !fits.ok()) return ctx.Error("has too many features");
  }
  return OneValue(ctx, proto::FP32, {parts[0].rows, features});
}

Made MakeVectorizerFloat(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(auto parts, VectorizerParts(ctx, in));
  return MakeKernel([parts = std::move(parts), features = out[0].shape[1]](In in, Out out, std::byte*) {
    std::int64_t column = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto [rows, own] = parts[i];
      for (std::int64_t row = 0; row < rows; ++row)
        std::copy_n(Data<float>(in[i]) + row * own, own,
                    MutableData<float>(out[0]) + row * features + column);
      column += own;
    }
    return absl::OkStatus();
  });
}

Made MakeVectorizer(const StepContext& ctx, Infos in, Infos out) {
  const std::vector<proto::DataType> types(in.size(), proto::FP32);
  return MakeConverted(&MakeVectorizerFloat, ctx, in, out, types, {types.data(), 1});
}

constexpr Operator kOperators[] = {
    {.name = "ai.onnx.ml.Scaler",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferScaler,
     .make = &MakeToFloat<&MakeScaler<float>, &MakeScaler<double>>,
     .types = kFeatureTypes},
    {.name = "ai.onnx.ml.Normalizer",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferNormalizer,
     .make = &MakeToFloat<&MakeNormalizer<float>, &MakeNormalizer<double>>,
     .types = kFeatureTypes},
    {.name = "ai.onnx.ml.Imputer",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferImputer,
     .make = &MakeImputer,
     .types = kFeatureTypes},
    {.name = "ai.onnx.ml.Binarizer",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferBinarizer,
     .make = &MakeBinarizer,
     .types = kFeatureTypes},
    {.name = "ai.onnx.ml.FeatureVectorizer",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferVectorizer,
     .make = &MakeVectorizer,
     .types = kFeatureTypes},
};

}  // namespace

std::span<const Operator> FeatureScalingOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
