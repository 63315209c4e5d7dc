// Comparisons, logic and selection: Equal, Greater, Less, And, Or, Xor, Not, Where, IsNaN, IsInf.
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gpu/ops/activation.hpp"
#include "gpu/ops/binary_rows.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/texts.hpp"

namespace troupe::gpu {
namespace {

template <TypeSet types>
Inferred InferCompare(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, types));
  if (in[0].type != in[1].type) return ctx.Error("the inputs have different types");
  TROUPE_ASSIGN_OR_RETURN(Shape shape, BroadcastAll(ctx, in));
  return OneValue(ctx, proto::BOOL, std::move(shape));
}

Made MakeCompare(const StepContext& ctx, Infos in, Infos out) {
  RowFunction row = FindCompareRow(ctx.step.op(), in[0].type);
  if (row == nullptr) return ctx.Error(absl::StrCat("no kernel for ", proto::DataType_Name(in[0].type)));
  const std::size_t size = ElementSize(in[0].type);
  BroadcastLoop loop(std::array{in[0].shape, in[1].shape}, std::array{size, size}, out[0].shape, 1);
  return MakeKernel([row, loop](In in, Out out, std::byte*) {
    loop.Run(row, std::array<const std::byte*, 2>{in[0].data, in[1].data}, out[0].data, nullptr);
    return absl::OkStatus();
  });
}

// --- Equal, of texts too

void EqualTextsRow(const Row& row) {
  const auto at = [&row](std::size_t input, std::int64_t i) {
    return ReadText(reinterpret_cast<const Text*>(row.in[input])[i * row.step[input]]);
  };
  for (std::int64_t i = 0; i < row.n; ++i) row.out[i] = std::byte{at(0, i) == at(1, i)};
}

Made MakeEqual(const StepContext& ctx, Infos in, Infos out) {
  if (in[0].type != proto::BYTES) return Widened<&MakeCompare>(ctx, in, out);
  BroadcastLoop loop(std::array{in[0].shape, in[1].shape}, std::array{sizeof(Text), sizeof(Text)},
                     out[0].shape, 1);
  return MakeKernel([loop](In in, Out out, std::byte*) {
    loop.Run(&EqualTextsRow, std::array<const std::byte*, 2>{in[0].data, in[1].data}, out[0].data, nullptr);
    return absl::OkStatus();
  });
}

// --- one input, BOOL out
// ------------------------------------------------------------------------------------------

template <TypeSet types>
Inferred InferTest(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, types));
  return OneValue(ctx, proto::BOOL, in[0].shape);
}

Made MakeNot(const StepContext&, Infos, Infos) {
  return MakeKernel([](In in, Out out, std::byte*) {
    const std::int64_t n = Elements(in[0]);
    for (std::int64_t i = 0; i < n; ++i) {
      MutableData<std::uint8_t>(out[0])[i] = Data<std::uint8_t>(in[0])[i] == 0 ? 1 : 0;
    }
    return absl::OkStatus();
  });
}

template <class F>
absl::Status TestFloats(In in, Out out, F f) {
  const std::int64_t n = Elements(in[0]);
  auto* result = MutableData<std::uint8_t>(out[0]);
  for (std::int64_t i = 0; i < n; ++i) {
    result[i] = in[0].type == proto::FP32 ? f(Data<float>(in[0])[i]) : f(Data<double>(in[0])[i]);
  }
  return absl::OkStatus();
}

Made MakeIsNaN(const StepContext&, Infos, Infos) {
  return MakeKernel([](In in, Out out, std::byte*) {
    return TestFloats(in, out, [](auto x) -> std::uint8_t { return std::isnan(x) ? 1 : 0; });
  });
}

Made MakeIsInf(const StepContext& ctx, Infos, Infos) {
  return MakeKernel([negative = ctx.Int("detect_negative", 1) != 0,
                     positive = ctx.Int("detect_positive", 1) != 0](In in, Out out, std::byte*) {
    return TestFloats(in, out, [=](auto x) -> std::uint8_t {
      return std::isinf(x) && ((x > 0 && positive) || (x < 0 && negative)) ? 1 : 0;
    });
  });
}

// --- Where
// --------------------------------------------------------------------------------------------------------

Inferred InferWhere(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 3, 3, kBoolType));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kAnyTypes));
  if (in[1].type != in[2].type) return ctx.Error("the two choices have different types");
  TROUPE_ASSIGN_OR_RETURN(Shape shape, BroadcastAll(ctx, in));
  return OneValue(ctx, in[1].type, std::move(shape));
}

template <class U>
void WhereRow(const Row& row) {
  const auto* choose = reinterpret_cast<const std::uint8_t*>(row.in[0]);
  const U* a = reinterpret_cast<const U*>(row.in[1]);
  const U* b = reinterpret_cast<const U*>(row.in[2]);
  U* out = reinterpret_cast<U*>(row.out);
  for (std::int64_t i = 0; i < row.n; ++i) {
    out[i] = choose[i * row.step[0]] != 0 ? a[i * row.step[1]] : b[i * row.step[2]];
  }
}

Made MakeWhere(const StepContext&, Infos in, Infos out) {
  const std::size_t size = CellSize(in[1].type);
  RowFunction row = ForElementSize(size, [](auto zero) -> RowFunction { return &WhereRow<decltype(zero)>; });
  BroadcastLoop loop(std::array{in[0].shape, in[1].shape, in[2].shape},
                     std::array<std::size_t, 3>{1, size, size}, out[0].shape, size);
  return MakeKernel([row, loop](In in, Out out, std::byte*) {
    loop.Run(row, std::array<const std::byte*, 3>{in[0].data, in[1].data, in[2].data}, out[0].data, nullptr);
    return absl::OkStatus();
  });
}

// --- Clip: bounds as attributes (to opset 10) or as scalars that may come at run time
// --------------------------------

Inferred InferClip(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 3, kNumberTypes));
  for (std::size_t i = 1; i < in.size(); ++i) {
    if (in[i].absent()) continue;
    if (in[i].type != in[0].type || in[i].elements() != 1) {
      return ctx.Error(absl::StrCat("input ", i, " must be a scalar of the input's type"));
    }
  }
  return OneValue(ctx, in[0].type, in[0].shape);
}

template <class T>
void ClipRow(const Row& row) {
  const auto& [low, high] = *static_cast<const std::pair<T, T>*>(row.parameters);
  const T* in = reinterpret_cast<const T*>(row.in[0]);
  T* out = reinterpret_cast<T*>(row.out);
  for (std::int64_t i = 0; i < row.n; ++i) {
    const T raised = in[i] < low ? low : in[i];
    out[i] = raised > high ? high : raised;
  }
}

template <class T>
Made MakeClipOf(const StepContext& ctx, Infos in, Infos out) {
  T low = std::numeric_limits<T>::lowest();
  T high = std::numeric_limits<T>::max();
  if constexpr (std::is_floating_point_v<T>) {
    low = static_cast<T>(ctx.Float("min", -std::numeric_limits<float>::infinity()));
    high = static_cast<T>(ctx.Float("max", std::numeric_limits<float>::infinity()));
  }
  BroadcastLoop loop(std::span(&in[0].shape, 1), std::array{sizeof(T)}, out[0].shape, sizeof(T));
  RowFunction fast = std::is_same_v<T, float> ? FindVectorRow("Clip") : nullptr;
  return MakeKernel(
      [=](In in, Out out, std::byte*) {
        std::pair<T, T> bounds(Present(in, 1) ? *Data<T>(in[1]) : low,
                               Present(in, 2) ? *Data<T>(in[2]) : high);
        const std::byte* data = in[0].data;
        if (fast != nullptr && bounds.first <= bounds.second) {
          UnaryParameters p{static_cast<double>(bounds.first), static_cast<double>(bounds.second)};
          loop.Run(fast, std::span(&data, 1), out[0].data, &p);
        } else {
          loop.Run(&ClipRow<T>, std::span(&data, 1), out[0].data, &bounds);
        }
        return absl::OkStatus();
      },
      Bytes(0), 0);
}

Made MakeClip(const StepContext& ctx, Infos in, Infos out) {
  switch (in[0].type) {
    case proto::FP32:
      return MakeClipOf<float>(ctx, in, out);
    case proto::FP64:
      return MakeClipOf<double>(ctx, in, out);
    case proto::INT32:
      return MakeClipOf<std::int32_t>(ctx, in, out);
    case proto::INT64:
      return MakeClipOf<std::int64_t>(ctx, in, out);
    case proto::UINT64:
      return MakeClipOf<std::uint64_t>(ctx, in, out);
    default:
      return ctx.Error("no kernel for this type");
  }
}

constexpr TypeSet kComparable = kNumberTypes;

template <TypeSet types>
constexpr Operator Compare(std::string_view name, int min_opset) {
  return {.name = name,
          .min_opset = min_opset,
          .max_opset = kNewestOpset,
          .infer = &InferCompare<types>,
          .make = &Widened<&MakeCompare>,
          .types = types};
}
template <TypeSet types>
constexpr Operator Test(std::string_view name, int min_opset, MakeFunction make) {
  return {.name = name,
          .min_opset = min_opset,
          .max_opset = kNewestOpset,
          .infer = &InferTest<types>,
          .make = make,
          .types = types};
}

constexpr Operator kOperators[] = {
    {.name = "Equal",
     .min_opset = 7,
     .max_opset = kNewestOpset,
     .infer = &InferCompare<kAnyTypes>,
     .make = &MakeEqual,
     .types = kAnyTypes},
    Compare<kComparable>("Greater", 7),
    Compare<kComparable>("GreaterOrEqual", 12),
    Compare<kComparable>("Less", 7),
    Compare<kComparable>("LessOrEqual", 12),
    Compare<kBoolType>("And", 7),
    Compare<kBoolType>("Or", 7),
    Compare<kBoolType>("Xor", 7),
    Test<kBoolType>("Not", 1, &MakeNot),
    Test<kFloatTypes>("IsNaN", 9, &FloatWidened<&MakeIsNaN>),
    Test<kFloatTypes>("IsInf", 10, &FloatWidened<&MakeIsInf>),
    {.name = "Where",
     .min_opset = 9,
     .max_opset = kNewestOpset,
     .infer = &InferWhere,
     .make = &MakeWhere,
     .types = kBoolType},
    {.name = "Clip",
     .min_opset = 6,
     .max_opset = kNewestOpset,
     .infer = &InferClip,
     .make = &Widened<&MakeClip>,
     .types = kNumberTypes},
};

}  // namespace

std::span<const Operator> LogicOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
