// Operators that make values: Constant, ConstantOfShape, Range, EyeLike, OneHot, Trilu.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "gpu/ops/binary_functions.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {
namespace {

// --- ConstantOfShape
// ----------------------------------------------------------------------------------------------

struct Fill {
  proto::DataType type = proto::FP32;
  std::array<std::byte, 8> value{};
};

absl::StatusOr<Fill> ReadFill(const StepContext& ctx) {
  Fill fill;
  const proto::Attribute* attribute = ctx.Find("value");
  if (attribute == nullptr) return fill;
  const auto& literal = attribute->tensor();
  fill.type = literal.spec().type();
  const std::size_t size = ElementSize(fill.type);
  if (!attribute->has_tensor() || size == 0 || literal.data().size() != size) {
    return ctx.Error("value must be a tensor of one element");
  }
  std::memcpy(fill.value.data(), literal.data().data(), size);
  return fill;
}

Inferred InferConstantOfShape(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kIndexTypes));
  TROUPE_ASSIGN_OR_RETURN(Shape shape, RequireInts(ctx, in, 0, "shape"));
  TROUPE_ASSIGN_OR_RETURN(const Fill fill, ReadFill(ctx));
  return OneValue(ctx, fill.type, std::move(shape));
}

void FillTensor(const TensorView& out, const std::byte* value) {
  ForElementSize(ElementSize(out.type), [&](auto zero) {
    decltype(zero) element;
    std::memcpy(&element, value, sizeof(element));
    std::fill_n(MutableData<decltype(zero)>(out), Elements(out), element);
  });
}

Made MakeConstantOfShape(const StepContext& ctx, Infos, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Fill fill, ReadFill(ctx));
  return MakeKernel([fill](In, Out out, std::byte*) {
    FillTensor(out[0], fill.value.data());
    return absl::OkStatus();
  });
}

// --- Constant (as a tensor; the reader turns every form into weights, this is for steps made elsewhere)
// ---------------

Inferred InferConstant(const StepContext& ctx, Infos) {
  const proto::Attribute* value = ctx.Find("value");
  if (value == nullptr || !value->has_tensor()) return ctx.Error("wants the attribute `value` as a tensor");
  const auto& spec = value->tensor().spec();
  Shape shape(spec.shape().begin(), spec.shape().end());
  auto count = CountElements(shape);
  if (!count.ok()) return ctx.Error(std::string(count.status().message()));
  const std::size_t size = ElementSize(spec.type());
  if (size == 0 || value->tensor().data().size() != static_cast<std::size_t>(*count) * size) {
    return ctx.Error("the bytes of `value` do not match its type and shape");
  }
  return OneValue(ctx, spec.type(), std::move(shape));
}

Made MakeConstant(const StepContext& ctx, Infos, Infos) {
  return MakeKernel([data = ctx.Find("value")->tensor().data()](In, Out out, std::byte*) {
    CopyBytes(out[0].data, reinterpret_cast<const std::byte*>(data.data()), data.size());
    return absl::OkStatus();
  });
}

// --- Range
// --------------------------------------------------------------------------------------------------------

template <class T>
absl::StatusOr<std::int64_t> RangeCount(const StepContext& ctx, Infos in) {
  const T start = *reinterpret_cast<const T*>(in[0].constant);
  const T limit = *reinterpret_cast<const T*>(in[1].constant);
  const T delta = *reinterpret_cast<const T*>(in[2].constant);
  if (delta == 0) return ctx.Error("delta is 0");
  const double count =
      std::ceil((static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta));
  if (!(count < 0x1p40)) return ctx.Error("makes more than 2^40 elements");
  return static_cast<std::int64_t>(std::max(count, 0.0));
}

constexpr TypeSet kRangeTypes = TypesOf({proto::FP32, proto::FP64, proto::INT16, proto::INT32, proto::INT64});

Inferred InferRange(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 3, 3, kRangeTypes));
  for (std::size_t i = 0; i < 3; ++i) {
    if (in[i].type != in[0].type || in[i].elements() != 1)
      return ctx.Error("wants three scalars of one type");
    if (in[i].constant == nullptr) {
      return ctx.Error(absl::StrCat("input ", i, " must be known when the plan is made"));
    }
  }
  absl::StatusOr<std::int64_t> count = 0;
  switch (in[0].type) {
    case proto::FP32:
      count = RangeCount<float>(ctx, in);
      break;
    case proto::FP64:
      count = RangeCount<double>(ctx, in);
      break;
    case proto::INT16:
      count = RangeCount<std::int16_t>(ctx, in);
      break;
    case proto::INT32:
      count = RangeCount<std::int32_t>(ctx, in);
      break;
    default:
      count = RangeCount<std::int64_t>(ctx, in);
  }
  if (!count.ok()) return count.status();
  return OneValue(ctx, in[0].type, {*count});
}

Made MakeRange(const StepContext&, Infos, Infos) {
  return MakeKernel([](In in, Out out, std::byte*) {
    const std::int64_t n = Elements(out[0]);
    ForWideType(out[0].type, [&](auto zero) {
      using T = decltype(zero);
      const T start = *Data<T>(in[0]);
      const T delta = *Data<T>(in[2]);
      for (std::int64_t i = 0; i < n; ++i) {
        MutableData<T>(out[0])[i] = AddOf<T>(nullptr)(start, MulOf<T>(nullptr)(static_cast<T>(i), delta));
      }
      return 0;
    });
    return absl::OkStatus();
  });
}

// --- EyeLike
// ------------------------------------------------------------------------------------------------------

Inferred InferEyeLike(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kFixedTypes));
  if (in[0].shape.size() != 2) return ctx.Error("wants a matrix");
  const std::int64_t dtype = ctx.Int("dtype", 0);
  const proto::DataType type = ctx.Find("dtype") == nullptr ? in[0].type : FromOnnxType(dtype);
  if (!Has(kFixedTypes, type)) return ctx.Error(absl::StrCat("cannot make ONNX type ", dtype));
  return OneValue(ctx, type, in[0].shape);
}

Made MakeEyeLike(const StepContext& ctx, Infos, Infos out) {
  const std::int32_t one = 1;
  std::array<std::byte, 8> value{};
  ConvertElements(proto::INT32, reinterpret_cast<const std::byte*>(&one), out[0].type, value.data(), 1);
  return MakeKernel([value, k = ctx.Int("k", 0)](In, Out out, std::byte*) {
    const std::size_t size = ElementSize(out[0].type);
    const std::int64_t columns = out[0].shape[1];
    std::fill_n(out[0].data, BytesOf(out[0]), std::byte{0});
    if (k >= columns || k <= -out[0].shape[0]) return absl::OkStatus();
    for (std::int64_t row = std::max<std::int64_t>(0, -k); row < out[0].shape[0] && row + k < columns;
         ++row) {
      std::memcpy(out[0].data + static_cast<std::size_t>(row * columns + row + k) * size, value.data(), size);
    }
    return absl::OkStatus();
  });
}

// --- OneHot
// -------------------------------------------------------------------------------------------------------

absl::StatusOr<std::int64_t> Depth(const StepContext& ctx, Infos in) {
  if (in[1].elements() != 1) return ctx.Error("depth must be one number");
  if (in[1].constant == nullptr) return ctx.Error("depth (input 1) must be known when the plan is made");
  std::int64_t depth = 0;
  ConvertElements(in[1].type, in[1].constant, proto::INT64, reinterpret_cast<std::byte*>(&depth), 1);
  if (depth < 1 || depth > (std::int64_t{1} << 40)) return ctx.Error(absl::StrCat("depth is ", depth));
  return depth;
}

Inferred InferOneHot(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 3, 3, kNumberTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kNumberTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 2, kFixedTypes));
  if (in[2].shape != Shape{2}) return ctx.Error("values must be the two of off and on");
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t depth, Depth(ctx, in));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", -1), in[0].shape.size() + 1));
  Shape shape = in[0].shape;
  shape.insert(shape.begin() + axis, depth);
  return OneValue(ctx, in[2].type, std::move(shape));
}

// Computed on INT64 indices (MakeConverted below). An index outside of the depth gives a row of 'off'.
Made MakeOneHotOf(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", -1), in[0].shape.size() + 1));
  const std::int64_t depth = out[0].shape[axis];
  const std::int64_t inner = Product(std::span(out[0].shape).subspan(static_cast<std::size_t>(axis) + 1));
  return MakeKernel([depth, inner](In in, Out out, std::byte*) {
    const std::size_t size = ElementSize(out[0].type);
    FillTensor(out[0], in[2].data);
    const std::int64_t count = Elements(in[0]);
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t index = Data<std::int64_t>(in[0])[i];
      if (index < 0) index += depth;
      if (index < 0 || index >= depth) continue;
      const std::int64_t place = (i / inner * depth + index) * inner + i % inner;
      std::memcpy(out[0].data + static_cast<std::size_t>(place) * size, in[2].data + size, size);
    }
    return absl::OkStatus();
  });
}

Made MakeOneHot(const StepContext& ctx, Infos in, Infos out) {
  return MakeConverted(&MakeOneHotOf, ctx, in, out, std::array{proto::INT64, in[1].type, in[2].type},
                       std::array{out[0].type});
}

// --- Trilu
// --------------------------------------------------------------------------------------------------------

Inferred InferTrilu(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 2, kFixedTypes));
  if (in[0].shape.size() < 2) return ctx.Error("wants matrices");
  if (Present(in, 1) && (in[1].type != proto::INT64 || in[1].elements() != 1))
    return ctx.Error("k must be one INT64");
  return OneValue(ctx, in[0].type, in[0].shape);
}

Made MakeTrilu(const StepContext& ctx, Infos, Infos) {
  return MakeKernel([upper = ctx.Int("upper", 1) != 0](In in, Out out, std::byte*) {
    const Shape& shape = in[0].shape;
    const std::int64_t rows = shape[shape.size() - 2];
    const std::int64_t columns = shape.back();
    const std::int64_t asked = Present(in, 1) ? *Data<std::int64_t>(in[1]) : 0;
    const std::int64_t k = std::clamp(asked, -rows - 1, columns + 1);
    const auto size = static_cast<std::int64_t>(ElementSize(in[0].type));
    const std::int64_t all_rows = columns == 0 ? 0 : Elements(in[0]) / columns;
    for (std::int64_t r = 0; r < all_rows; ++r) {
      // The row keeps [first, last): from the diagonal on, or up to it.
      const std::int64_t diagonal = r % rows + k;
      const std::int64_t first = upper ? std::clamp<std::int64_t>(diagonal, 0, columns) : 0;
      const std::int64_t last = upper ? columns : std::clamp<std::int64_t>(diagonal + 1, 0, columns);
      std::byte* to = out[0].data + r * columns * size;
      const std::byte* from = in[0].data + r * columns * size;
      std::fill_n(to, first * size, std::byte{0});
      CopyBytes(to + first * size, from + first * size, static_cast<std::size_t>((last - first) * size));
      std::fill_n(to + last * size, (columns - last) * size, std::byte{0});
    }
    return absl::OkStatus();
  });
}

constexpr Operator kOperators[] = {
    {.name = "Constant",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferConstant,
     .make = &MakeConstant,
     .types = kFixedTypes},
    {.name = "ConstantOfShape",
     .min_opset = 9,
     .max_opset = kNewestOpset,
     .infer = &InferConstantOfShape,
     .make = &MakeConstantOfShape,
     .types = TypesOf({proto::INT64})},
    {.name = "Range",
     .min_opset = 11,
     .max_opset = kNewestOpset,
     .infer = &InferRange,
     .make = &Widened<&MakeRange>,
     .types = kRangeTypes},
    {.name = "EyeLike",
     .min_opset = 9,
     .max_opset = kNewestOpset,
     .infer = &InferEyeLike,
     .make = &MakeEyeLike,
     .types = kFixedTypes},
    {.name = "OneHot",
     .min_opset = 9,
     .max_opset = kNewestOpset,
     .infer = &InferOneHot,
     .make = &MakeOneHot,
     .types = kNumberTypes},
    {.name = "Trilu",
     .min_opset = 14,
     .max_opset = kNewestOpset,
     .infer = &InferTrilu,
     .make = &MakeTrilu,
     .types = kFixedTypes},
};

}  // namespace

std::span<const Operator> GenerateOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
