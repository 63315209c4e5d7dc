// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/quantized.hpp"

namespace troupe::gpu {

absl::Status CheckTensorScale(const StepContext& ctx, Infos in, std::size_t scale, proto::DataType type) {
  if (!Present(in, scale) || in[scale].type != proto::FP32 || in[scale].elements() != 1)
    return ctx.Error(absl::StrCat("input ", scale, " must be one FP32, the scale of the tensor"));
  if (Present(in, scale + 1) && (in[scale + 1].type != type || in[scale + 1].elements() != 1))
    return ctx.Error(absl::StrCat("input ", scale + 1, " must be one ", proto::DataType_Name(type),
                                  ", the zero point of the tensor"));
  return absl::OkStatus();
}

absl::StatusOr<QuantizedAxis> ReadQuantizedAxis(const StepContext& ctx, Infos in, std::size_t scale) {
  const Shape& shape = in[0].shape;
  const Shape& scales = in[scale].shape;
  if (Present(in, scale + 1) && in[scale + 1].elements() != in[scale].elements()) {
    return ctx.Error("scale and zero point differ in size");
  }
  const std::int64_t block = ctx.opset < 21 ? 0 : ctx.Int("block_size", 0);
  if (block == 0 && in[scale].elements() == 1) return QuantizedAxis{1, 1, Product(shape)};
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis, NormalizeAxis(ctx, ctx.Int("axis", 1), shape.size()));
  if (block < 0) return ctx.Error(absl::StrCat("block_size is ", block, ", wants 0 or more"));
  const std::int64_t dim = shape[axis];
  Shape wanted = {dim};
  if (block > 0) {
    wanted = shape;
    wanted[axis] = dim == 0 ? 0 : (dim - 1) / block + 1;
  }
  if (scales != wanted) {
    return ctx.Error(absl::StrCat("scale ", FormatShape(scales), " is neither a scalar nor ",
                                  FormatShape(wanted), ", one for each ",
                                  block > 0 ? absl::StrCat("block of ", block, " along") : "element of",
                                  " axis ", axis, " of ", FormatShape(shape)));
  }
  const std::span dims(shape);
  return QuantizedAxis{Product(dims.first(static_cast<std::size_t>(axis))), dim,
                       Product(dims.subspan(static_cast<std::size_t>(axis) + 1)), block};
}

namespace {

template <class T>
void Saturate(std::byte* out, std::int64_t i, double value) {
  reinterpret_cast<T*>(out)[i] =
      static_cast<T>(std::clamp(value, static_cast<double>(std::numeric_limits<T>::lowest()),
                                static_cast<double>(std::numeric_limits<T>::max())));
}

}  // namespace

void QuantizeTo(proto::DataType type, std::byte* out, std::int64_t i, double scaled, std::int64_t zero) {
  // nearbyint rounds halves to even in the default mode, as the standard wants. NaN becomes the zero point.
  const double rounded = std::isnan(scaled) ? 0.0 : std::nearbyint(scaled);
  const double value = rounded + static_cast<double>(zero);
  switch (type) {
    case proto::UINT8:
      return Saturate<std::uint8_t>(out, i, value);
    case proto::UINT16:
      return Saturate<std::uint16_t>(out, i, value);
    case proto::INT16:
      return Saturate<std::int16_t>(out, i, value);
    default:
      return Saturate<std::int8_t>(out, i, value);
  }
}

std::int64_t SmallIntAt(const TensorView& view, std::int64_t i) {
  switch (view.type) {
    case proto::UINT8:
      return Data<std::uint8_t>(view)[i];
    case proto::INT8:
      return Data<std::int8_t>(view)[i];
    case proto::UINT16:
      return Data<std::uint16_t>(view)[i];
    case proto::INT16:
      return Data<std::int16_t>(view)[i];
    default:
      return Data<std::int32_t>(view)[i];
  }
}

namespace {

constexpr TypeSet kShortTypes = kByteTypes | TypesOf({proto::UINT16, proto::INT16});  // from opset 21 on
constexpr TypeSet kScaleTypes = TypesOf({proto::FP32, proto::FP16, proto::BF16});     // from opset 19 on
constexpr TypeSet kQuantized = kScaleTypes | TypesOf({proto::INT32});
constexpr TypeSet kStored = kShortTypes | TypesOf({proto::INT32});

// What the attribute `output_dtype` asks for; `fallback` where it is absent.
absl::StatusOr<proto::DataType> OutputType(const StepContext& ctx, int since, proto::DataType fallback,
                                           TypeSet types) {
  const std::int64_t asked = ctx.opset < since ? 0 : ctx.Int("output_dtype", 0);
  if (asked == 0) return fallback;
  const proto::DataType type = FromOnnxType(asked);
  if (Has(types, type)) return type;
  return ctx.Error(
      absl::StrCat("output_dtype ", OnnxTypeName(asked), " is not supported; quantise to another type"));
}

absl::Status CheckScale(const StepContext& ctx, Infos in) {
  return CheckType(ctx, in, 1, ctx.opset < 19 ? TypesOf({proto::FP32}) : kScaleTypes);
}

Inferred InferQuantize(const StepContext& ctx, Infos in) {
  const TypeSet types = ctx.opset < 19 ? TypesOf({proto::FP32, proto::INT32}) : kQuantized;
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 3, types));
  TROUPE_RETURN_IF_ERROR(CheckScale(ctx, in));
  const TypeSet results = ctx.opset < 21 ? kByteTypes : kShortTypes;
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 2, results));
  TROUPE_RETURN_IF_ERROR(ReadQuantizedAxis(ctx, in, 1).status());
  TROUPE_ASSIGN_OR_RETURN(const proto::DataType asked, OutputType(ctx, 21, proto::UINT8, results));
  return OneValue(ctx, Present(in, 2) ? in[2].type : asked, in[0].shape);
}

// Computed on FP32 (MakeConverted below).
Made MakeQuantizeOf(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const QuantizedAxis axis, ReadQuantizedAxis(ctx, in, 1));
  return MakeKernel([axis](In in, Out out, std::byte*) {
    axis.ForEach([&](std::int64_t i, std::int64_t s) {
      const std::int64_t zero = Present(in, 2) ? SmallIntAt(in[2], s) : 0;
      QuantizeTo(out[0].type, out[0].data, i,
                 static_cast<double>(Data<float>(in[0])[i] / Data<float>(in[1])[s]), zero);
    });
    return absl::OkStatus();
  });
}

Made MakeQuantize(const StepContext& ctx, Infos in, Infos out) {
  std::vector<proto::DataType> types;
  for (const ValueInfo& info : in) types.push_back(info.type);
  types[0] = types[1] = proto::FP32;
  return MakeConverted(&MakeQuantizeOf, ctx, in, out, types, std::array{out[0].type});
}

Inferred InferDequantize(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(
      CheckInputs(ctx, in, 2, 3, ctx.opset < 21 ? kByteTypes | TypesOf({proto::INT32}) : kStored));
  TROUPE_RETURN_IF_ERROR(CheckScale(ctx, in));
  if (Present(in, 2) && in[2].type != in[0].type)
    return ctx.Error("the zero point has another type than the input");
  TROUPE_RETURN_IF_ERROR(ReadQuantizedAxis(ctx, in, 1).status());
  TROUPE_ASSIGN_OR_RETURN(const proto::DataType type, OutputType(ctx, 23, in[1].type, kScaleTypes));
  return OneValue(ctx, type, in[0].shape);
}

// Computed on FP32 (MakeConverted below).
Made MakeDequantizeOf(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const QuantizedAxis axis, ReadQuantizedAxis(ctx, in, 1));
  return MakeKernel([axis](In in, Out out, std::byte*) {
    axis.ForEach([&](std::int64_t i, std::int64_t s) {
      const std::int64_t zero = Present(in, 2) ? SmallIntAt(in[2], s) : 0;
      MutableData<float>(out[0])[i] = static_cast<float>(SmallIntAt(in[0], i) - zero) * Data<float>(in[1])[s];
    });
    return absl::OkStatus();
  });
}

Made MakeDequantize(const StepContext& ctx, Infos in, Infos out) {
  std::vector<proto::DataType> types;
  for (const ValueInfo& info : in) types.push_back(info.type);
  types[1] = proto::FP32;
  return MakeConverted(&MakeDequantizeOf, ctx, in, out, types, std::array{proto::FP32});
}

Inferred InferDynamicQuantize(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, TypesOf({proto::FP32})));
  TROUPE_ASSIGN_OR_RETURN(ValueInfo y, Value(ctx, proto::UINT8, in[0].shape));
  TROUPE_ASSIGN_OR_RETURN(ValueInfo scale, Value(ctx, proto::FP32, {}));
  TROUPE_ASSIGN_OR_RETURN(ValueInfo zero, Value(ctx, proto::UINT8, {}));
  std::vector<ValueInfo> out = {std::move(y), std::move(scale), std::move(zero)};
  out.resize(static_cast<std::size_t>(std::clamp(ctx.step.outputs_size(), 1, 3)));
  return out;
}

Made MakeDynamicQuantize(const StepContext&, Infos, Infos) {
  return MakeKernel([](In in, Out out, std::byte*) {
    const std::int64_t n = Elements(in[0]);
    const float* x = Data<float>(in[0]);
    float low = 0;  // the range always holds 0
    float high = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      low = std::min(low, x[i]);
      high = std::max(high, x[i]);
    }
    const float range = (high - low) / 255.0F;
    const float scale = range > 0 ? range : 1.0F;
    std::uint8_t zero = 0;
    QuantizeTo(proto::UINT8, reinterpret_cast<std::byte*>(&zero), 0, static_cast<double>(-low / scale), 0);
    if (out[0].data != nullptr) {
      for (std::int64_t i = 0; i < n; ++i) {
        QuantizeTo(proto::UINT8, out[0].data, i, static_cast<double>(x[i] / scale), zero);
      }
    }
    if (out.size() > 1 && out[1].data != nullptr) *MutableData<float>(out[1]) = scale;
    if (out.size() > 2 && out[2].data != nullptr) *MutableData<std::uint8_t>(out[2]) = zero;
    return absl::OkStatus();
  });
}

constexpr Operator kOperators[] = {
    {.name = "QuantizeLinear",
     .min_opset = 10,
     .max_opset = kNewestOpset,
     .infer = &InferQuantize,
     .make = &MakeQuantize,
     .types = kQuantized},
    {.name = "DequantizeLinear",
     .min_opset = 10,
     .max_opset = kNewestOpset,
     .infer = &InferDequantize,
     .make = &MakeDequantize,
     .types = kStored},
    {.name = "DynamicQuantizeLinear",
     .min_opset = 11,
     .max_opset = kNewestOpset,
     .infer = &InferDynamicQuantize,
     .make = &MakeDynamicQuantize,
     .types = TypesOf({proto::FP32})},
};

}  // namespace

std::span<const Operator> QuantizeOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
