// Element-wise operators of com.microsoft on quantised tensors: QLinearAdd, QLinearMul, QLinearSigmoid,
// QLinearLeakyRelu, and QLinearConcat, which gives its inputs one scale.
#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gpu/ops/broadcast_loop.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/quantized.hpp"

namespace troupe::gpu {
namespace {

constexpr int kValues = 256;  // of a byte

float ScaleOf(In in, std::size_t scale) {
  return *Data<float>(in[scale]);
}
std::int64_t ZeroOf(In in, std::size_t scale) {
  return Present(in, scale + 1) ? SmallIntAt(in[scale + 1], 0) : 0;
}

// The stored value that byte `i` of a tensor of `type` means.
std::int64_t StoredOf(proto::DataType type, int i) {
  return type == proto::INT8 ? static_cast<std::int8_t>(i) : i;
}

// The real values of all bytes, with the scale and zero point at input `scale`.
std::array<float, kValues> RealValues(In in, std::size_t scale, proto::DataType type) {
  std::array<float, kValues> values{};
  for (int i = 0; i < kValues; ++i)
    values[static_cast<std::size_t>(i)] =
        static_cast<float>(StoredOf(type, i) - ZeroOf(in, scale)) * ScaleOf(in, scale);
  return values;
}

// --- Functions of one tensor: x, x_scale, x_zero, y_scale, y_zero ---

Inferred InferUnary(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckAttributes(ctx, {"alpha"}));
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 4, 5, kByteTypes));
  for (std::size_t scale : {1, 3}) TROUPE_RETURN_IF_ERROR(CheckTensorScale(ctx, in, scale, in[0].type));
  return OneValue(ctx, in[0].type, in[0].shape);
}

// Each byte's answer, from which the tensor is looked up.
template <class F>
Made MakeUnary(F function) {
  return MakeKernel(
      [function](In in, Out out, std::byte*) {
        const std::array<float, kValues> real = RealValues(in, 1, in[0].type);
        std::array<std::byte, kValues> answers{};
        for (std::int64_t i = 0; i < kValues; ++i) {
          const float y = function(real[static_cast<std::size_t>(i)]) / ScaleOf(in, 3);
          QuantizeTo(out[0].type, answers.data(), i, static_cast<double>(y), ZeroOf(in, 3));
        }
        const std::int64_t n = Elements(in[0]);
        for (std::int64_t i = 0; i < n; ++i)
          out[0].data[i] = answers[std::to_integer<std::size_t>(in[0].data[i])];
        return absl::OkStatus();
      },
      Bytes(0), 0);
}

Made MakeSigmoid(const StepContext&, Infos, Infos) {
  return MakeUnary([](float x) { return 1.0F / (1.0F + std::exp(-x)); });
}

Made MakeLeakyRelu(const StepContext& ctx, Infos, Infos) {
  return MakeUnary([alpha = ctx.Float("alpha", 0.01F)](float x) { return x < 0 ? alpha * x : x; });
}

// --- Functions of two tensors: a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero ---

Inferred InferBinary(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckAttributes(ctx, {}));
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 8, kByteTypes));
  if (!Present(in, 3) || in[3].type != in[0].type)
    return ctx.Error("input 3 must be a tensor of input 0's type");
  for (std::size_t scale : {1, 4, 6}) TROUPE_RETURN_IF_ERROR(CheckTensorScale(ctx, in, scale, in[0].type));
  auto shape = BroadcastShapes(in[0].shape, in[3].shape);
  if (!shape.ok()) return ctx.Error(std::string(shape.status().message()));
  return OneValue(ctx, in[0].type, *std::move(shape));
}

struct BinaryTables {
  std::array<float, kValues> a, b;  // in units of the result's scale where they are added
  float scale = 1;                  // of the result of a product
  float zero = 0;
};

template <class T, bool adds>
void BinaryRow(const Row& row) {
  const auto& tables = *static_cast<const BinaryTables*>(row.parameters);
  const auto* a = reinterpret_cast<const std::uint8_t*>(row.in[0]);
  const auto* b = reinterpret_cast<const std::uint8_t*>(row.in[1]);
  T* out = reinterpret_cast<T*>(row.out);
  constexpr float kLow = std::numeric_limits<T>::min();
  constexpr float kHigh = std::numeric_limits<T>::max();
  for (std::int64_t i = 0; i < row.n; ++i) {
    const float x = tables.a[a[i * row.step[0]]];
    const float y = tables.b[b[i * row.step[1]]];
    const float real = adds ? x + y : x * y * tables.scale;
    const float whole = std::isnan(real) ? 0.0F : std::nearbyint(real);  // as QuantizeTo has it
    out[i] = static_cast<T>(std::clamp(whole + tables.zero, kLow, kHigh));
  }
}

template <bool adds>
Made MakeBinary(const StepContext&, Infos in, Infos out) {
  const std::array<Shape, 2> shapes = {in[0].shape, in[3].shape};
  const std::array<std::size_t, 2> sizes = {1, 1};
  const BroadcastLoop loop(shapes, sizes, out[0].shape, 1);
  const RowFunction row =
      in[0].type == proto::INT8 ? &BinaryRow<std::int8_t, adds> : &BinaryRow<std::uint8_t, adds>;
  return MakeKernel([loop, row](In in, Out out, std::byte*) {
    BinaryTables tables{RealValues(in, 1, in[0].type), RealValues(in, 4, in[0].type)};
    tables.scale = 1 / ScaleOf(in, 6);
    tables.zero = static_cast<float>(ZeroOf(in, 6));
    if (adds) {
      for (float& x : tables.a) x /= ScaleOf(in, 6);
      for (float& x : tables.b) x /= ScaleOf(in, 6);
    }
    const std::array<const std::byte*, 2> data = {in[0].data, in[3].data};
    loop.Run(row, data, out[0].data, &tables);
    return absl::OkStatus();
  });
}

// --- QLinearConcat: y_scale, y_zero, then a tensor with its scale and zero point for each part ---

struct Joined {
  Shape shape;
  std::int64_t axis = 0;
  proto::DataType type = proto::DATA_TYPE_UNSPECIFIED;
};

absl::StatusOr<Joined> ReadJoined(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckAttributes(ctx, {"axis"}));
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 1 << 20, TypesOf({proto::FP32})));
  if (in.size() < 4) return ctx.Error(absl::StrCat("has ", in.size(), " inputs, wants a tensor to join"));
  Joined joined;
  joined.type = in[1].type;
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kByteTypes));
  TROUPE_RETURN_IF_ERROR(CheckTensorScale(ctx, in, 0, joined.type));
  if (ctx.Find("axis") == nullptr) return ctx.Error("has no axis");
  for (std::size_t i = 2; i < in.size(); i += 3) {
    if (!Present(in, i) || in[i].type != joined.type)
      return ctx.Error(absl::StrCat("input ", i, " must be a tensor of ", proto::DataType_Name(joined.type)));
    TROUPE_RETURN_IF_ERROR(CheckTensorScale(ctx, in, i + 1, joined.type));
    Shape part = in[i].shape;
    TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis, NormalizeAxis(ctx, ctx.Int("axis", 0), part.size()));
    if (i == 2) {
      joined.shape = part;
      joined.axis = axis;
      continue;
    }
    bool fits = part.size() == joined.shape.size();
    if (fits) {
      if (__builtin_add_overflow(joined.shape[axis], part[axis], &joined.shape[axis]))
        return ctx.Error("too long");
      part[axis] = joined.shape[axis];
      fits = part == joined.shape;
    }
    if (!fits)
      return ctx.Error(absl::StrCat("input ", i, " is ", FormatShape(in[i].shape), ", which does not join ",
                                    FormatShape(in[2].shape), " on axis ", axis));
  }
  return joined;
}

Inferred InferJoined(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(Joined joined, ReadJoined(ctx, in));
  return OneValue(ctx, joined.type, std::move(joined.shape));
}

Made MakeJoined(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Joined joined, ReadJoined(ctx, in));
  const auto inner = [axis = static_cast<std::size_t>(joined.axis)](const Shape& shape) {
    return Product(std::span(shape).subspan(axis));
  };
  const std::int64_t outer = Product(std::span(joined.shape).first(static_cast<std::size_t>(joined.axis)));
  return MakeKernel([outer, inner](In in, Out out, std::byte*) {
    const std::int64_t row = inner(out[0].shape);
    std::int64_t offset = 0;
    for (std::size_t part = 2; part < in.size(); part += 3) {
      const std::array<float, kValues> real = RealValues(in, part + 1, in[part].type);
      std::array<std::byte, kValues> answers{};
      for (std::int64_t i = 0; i < kValues; ++i)
        QuantizeTo(out[0].type, answers.data(), i,
                   static_cast<double>(real[static_cast<std::size_t>(i)] / ScaleOf(in, 0)), ZeroOf(in, 0));
      const std::int64_t width = inner(in[part].shape);
      for (std::int64_t o = 0; o < outer; ++o) {
        const std::byte* from = in[part].data + o * width;
        std::byte* to = out[0].data + o * row + offset;
        for (std::int64_t i = 0; i < width; ++i) to[i] = answers[std::to_integer<std::size_t>(from[i])];
      }
      offset += width;
    }
    return absl::OkStatus();
  });
}

constexpr Operator Entry(std::string_view name, decltype(Operator::infer) infer,
                         decltype(Operator::make) make, TypeSet types = kByteTypes) {
  return {
      .name = name, .min_opset = 1, .max_opset = kNewestOpset, .infer = infer, .make = make, .types = types};
}

constexpr Operator kOperators[] = {
    Entry("com.microsoft.QLinearAdd", &InferBinary, &MakeBinary<true>),
    Entry("com.microsoft.QLinearMul", &InferBinary, &MakeBinary<false>),
    Entry("com.microsoft.QLinearSigmoid", &InferUnary, &MakeSigmoid),
    Entry("com.microsoft.QLinearLeakyRelu", &InferUnary, &MakeLeakyRelu),
    Entry("com.microsoft.QLinearConcat", &InferJoined, &MakeJoined, TypesOf({proto::FP32})),
};

}  // namespace

std::span<const Operator> ByteElementOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
