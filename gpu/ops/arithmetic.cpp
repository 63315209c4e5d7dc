// Element-wise arithmetic with broadcasting: Add, Sub, Mul, Div, Pow, Mod, PRelu, BitShift; Min, Max, Sum,
// Mean.
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/ops/activation.hpp"
#include "gpu/ops/binary_rows.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"

namespace troupe::gpu {

absl::StatusOr<Shape> BroadcastAll(const StepContext& ctx, Infos in) {
  Shape shape = in[0].shape;
  for (const ValueInfo& info : in.subspan(1)) {
    if (info.absent()) continue;
    auto both = BroadcastShapes(shape, info.shape);
    if (!both.ok()) return ctx.Error(std::string(both.status().message()));
    shape = *std::move(both);
  }
  return shape;
}

namespace {

// One binary pass over two tensors.
class BinaryPass {
 public:
  BinaryPass(RowFunction row, const Shape& a, const Shape& b, const Shape& out, std::size_t size)
      : row_(row), loop_(std::array{a, b}, std::array{size, size}, out, size) {}
  void Run(const std::byte* a, const std::byte* b, std::byte* out, const FusedActivation& fused) const {
    const std::array<const std::byte*, 2> in = {a, b};
    loop_.Run(row_, in, out, nullptr, fused.row, &fused.parameters);
  }

 private:
  RowFunction row_;
  BroadcastLoop loop_;
};

// --- exactly two inputs of one type
// -------------------------------------------------------------------------------

template <TypeSet types>
Inferred InferBinary(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, types));
  if (in[0].type != in[1].type) return ctx.Error("the inputs have different types");
  TROUPE_ASSIGN_OR_RETURN(Shape shape, BroadcastAll(ctx, in));
  return OneValue(ctx, in[0].type, std::move(shape));
}

Made MakeBinaryNamed(std::string_view op, const StepContext& ctx, Infos in, Infos out) {
  RowFunction row = FindArithmeticRow(op, in[0].type);
  if (row == nullptr) return ctx.Error(absl::StrCat("no kernel for ", proto::DataType_Name(in[0].type)));
  TROUPE_ASSIGN_OR_RETURN(FusedActivation fused, FindFusedActivation(ctx));
  if (fused.row != nullptr && in[0].type != proto::FP32) return ctx.Error("a fused activation wants floats");
  const int in_place = in[0].shape == out[0].shape ? 0 : (in[1].shape == out[0].shape ? 1 : -1);
  return MakeKernel(
      [pass = BinaryPass(row, in[0].shape, in[1].shape, out[0].shape, ElementSize(in[0].type)), fused](
          In in, Out out, std::byte*) {
        pass.Run(in[0].data, in[1].data, out[0].data, fused);
        return absl::OkStatus();
      },
      Bytes(0), in_place);
}

Made MakeBinary(const StepContext& ctx, Infos in, Infos out) {
  return MakeBinaryNamed(ctx.step.op(), ctx, in, out);
}

// --- Pow: the exponent may have a type of its own
// -----------------------------------------------------------------

Inferred InferPow(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kNumberTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kNumberTypes));
  TROUPE_ASSIGN_OR_RETURN(Shape shape, BroadcastAll(ctx, in));
  return OneValue(ctx, in[0].type, std::move(shape));
}

Made MakePow(const StepContext& ctx, Infos in, Infos out) {
  const bool float_exponent = Has(kFloatTypes, in[1].type);
  proto::DataType type = WideType(in[0].type);
  if (!Has(kFloatTypes, type) && float_exponent) type = proto::FP64;
  return MakeConverted(&MakeBinary, ctx, in, out, std::array{type, type}, std::array{type});
}

// --- Mod
// ----------------------------------------------------------------------------------------------------------

Inferred InferMod(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, InferBinary<kNumberTypes>(ctx, in));
  const std::int64_t fmod = ctx.Int("fmod", 0);
  if (fmod != 0 && fmod != 1) return ctx.Error(absl::StrCat("fmod is ", fmod, ", wants 0 or 1"));
  if (fmod == 0 && Has(kFloatTypes, in[0].type)) return ctx.Error("floats want fmod=1");
  return out;
}

Made MakeMod(const StepContext& ctx, Infos in, Infos out) {
  return MakeBinaryNamed(ctx.Int("fmod", 0) == 1 ? "Fmod" : "Mod", ctx, in, out);
}

// --- PRelu: the slope broadcasts one way
// --------------------------------------------------------------------------

Inferred InferPRelu(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, InferBinary<kNumberTypes>(ctx, in));
  if (out[0].shape != in[0].shape) return ctx.Error("the slope does not broadcast to the input");
  return out;
}

// --- BitShift
// -----------------------------------------------------------------------------------------------------

Inferred InferBitShift(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, InferBinary<kUnsignedTypes>(ctx, in));
  const std::string direction = ctx.Text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    return ctx.Error(absl::StrCat("direction is '", direction, "', wants LEFT or RIGHT"));
  }
  return out;
}

template <bool left>
void ShiftRow(const Row& row) {
  const auto* x = reinterpret_cast<const std::uint64_t*>(row.in[0]);
  const auto* by = reinterpret_cast<const std::uint64_t*>(row.in[1]);
  auto* out = reinterpret_cast<std::uint64_t*>(row.out);
  for (std::int64_t i = 0; i < row.n; ++i) {
    const std::uint64_t amount = by[i * row.step[1]];
    const std::uint64_t value = x[i * row.step[0]];
    out[i] = amount > 63 ? 0 : (left ? value << amount : value >> amount);
  }
}

Made MakeBitShiftWide(const StepContext& ctx, Infos in, Infos out) {
  RowFunction row = ctx.Text("direction", "") == "LEFT" ? &ShiftRow<true> : &ShiftRow<false>;
  return MakeKernel(
      [pass = BinaryPass(row, in[0].shape, in[1].shape, out[0].shape, 8)](In in, Out out, std::byte*) {
        pass.Run(in[0].data, in[1].data, out[0].data, {});
        return absl::OkStatus();
      });
}

Made MakeBitShift(const StepContext& ctx, Infos in, Infos out) {
  return MakeConverted(&MakeBitShiftWide, ctx, in, out, std::array{proto::UINT64, proto::UINT64},
                       std::array{proto::UINT64});
}

// --- one or more inputs
// -------------------------------------------------------------------------------------------

template <TypeSet types>
Inferred InferVariadic(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, in.empty() ? 1 : in.size(), 4096, types));
  for (const ValueInfo& info : in) {
    if (info.type != in[0].type) return ctx.Error("the inputs have different types");
  }
  TROUPE_ASSIGN_OR_RETURN(Shape shape, BroadcastAll(ctx, in));
  return OneValue(ctx, in[0].type, std::move(shape));
}

// The first two inputs give the output; every further one is folded into it in place.
Made MakeVariadic(const StepContext& ctx, Infos in, Infos out) {
  const std::string& op = ctx.step.op();
  const bool mean = op == "Mean";
  RowFunction row = FindArithmeticRow(op == "Sum" || mean ? "Add" : op, in[0].type);
  RowFunction scale = FindArithmeticRow("Mul", in[0].type);
  if (row == nullptr || (mean && !Has(kFloatTypes, in[0].type))) {
    return ctx.Error(absl::StrCat("no kernel for ", proto::DataType_Name(in[0].type)));
  }
  TROUPE_ASSIGN_OR_RETURN(FusedActivation fused, FindFusedActivation(ctx));
  if (fused.row != nullptr && (in[0].type != proto::FP32 || mean || in.size() < 2)) {
    return ctx.Error("an activation cannot be fused into this step");
  }
  const std::size_t size = ElementSize(in[0].type);
  std::vector<BinaryPass> passes;
  for (std::size_t i = 1; i < in.size(); ++i) {
    passes.emplace_back(row, i == 1 ? in[0].shape : out[0].shape, in[i].shape, out[0].shape, size);
  }
  const double factor = 1.0 / static_cast<double>(in.size());
  const BinaryPass scaling(scale, out[0].shape, Shape(), out[0].shape, size);
  return MakeKernel([=](In in, Out out, std::byte*) {
    if (passes.empty()) CopyBytes(out[0].data, in[0].data, BytesOf(out[0]));
    for (std::size_t i = 0; i < passes.size(); ++i) {
      passes[i].Run(i == 0 ? in[0].data : out[0].data, in[i + 1].data, out[0].data,
                    i + 1 == passes.size() ? fused : FusedActivation());
    }
    if (mean) {
      const auto narrow = static_cast<float>(factor);
      const void* by = size == sizeof(float) ? static_cast<const void*>(&narrow) : &factor;
      scaling.Run(out[0].data, static_cast<const std::byte*>(by), out[0].data, {});
    }
    return absl::OkStatus();
  });
}

template <TypeSet types = kNumberTypes>
constexpr Operator Binary(std::string_view name) {
  return {.name = name,
          .min_opset = 6,
          .max_opset = kNewestOpset,
          .infer = &InferBinary<types>,
          .make = &Widened<&MakeBinary>,
          .types = types,
          .fuses_activation = name == "Add"};
}
template <TypeSet types>
constexpr Operator Variadic(std::string_view name) {
  return {.name = name,
          .min_opset = 6,
          .max_opset = kNewestOpset,
          .infer = &InferVariadic<types>,
          .make = &Widened<&MakeVariadic>,
          .types = types,
          .fuses_activation = name == "Sum"};
}

constexpr Operator kOperators[] = {
    Binary("Add"),
    Binary("Sub"),
    Binary("Mul"),
    Binary("Div"),
    {.name = "Pow",
     .min_opset = 7,
     .max_opset = kNewestOpset,
     .infer = &InferPow,
     .make = &MakePow,
     .types = kNumberTypes},
    {.name = "Mod",
     .min_opset = 10,
     .max_opset = kNewestOpset,
     .infer = &InferMod,
     .make = &Widened<&MakeMod>,
     .types = kNumberTypes},
    {.name = "PRelu",
     .min_opset = 7,
     .max_opset = kNewestOpset,
     .infer = &InferPRelu,
     .make = &Widened<&MakeBinary>,
     .types = kNumberTypes},
    {.name = "BitShift",
     .min_opset = 11,
     .max_opset = kNewestOpset,
     .infer = &InferBitShift,
     .make = &MakeBitShift,
     .types = kUnsignedTypes},
    Variadic<kNumberTypes>("Max"),
    Variadic<kNumberTypes>("Min"),
    Variadic<kFloatTypes>("Sum"),
    Variadic<kFloatTypes>("Mean"),
};

}  // namespace

std::span<const Operator> ArithmeticOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
