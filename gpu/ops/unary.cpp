// Element-wise functions of one input: mathematics and activations.
#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gpu/ops/activation.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"

namespace troupe::gpu {
namespace {

template <class T>
RowFunction IntegerRow(std::string_view op) {
  using U = std::make_unsigned_t<T>;
  if (op == "Abs") {
    return [](const Row& row) {
      const T* in = reinterpret_cast<const T*>(row.in[0]);
      for (std::int64_t i = 0; i < row.n; ++i) {
        // Negation as unsigned: the most negative value has no positive one and wraps.
        reinterpret_cast<T*>(row.out)[i] = in[i] < 0 ? static_cast<T>(U(0) - static_cast<U>(in[i])) : in[i];
      }
    };
  }
  if (op == "Neg") {
    return [](const Row& row) {
      const T* in = reinterpret_cast<const T*>(row.in[0]);
      for (std::int64_t i = 0; i < row.n; ++i) {
        reinterpret_cast<T*>(row.out)[i] = static_cast<T>(U(0) - static_cast<U>(in[i]));
      }
    };
  }
  if (op == "Sign") {
    return [](const Row& row) {
      const T* in = reinterpret_cast<const T*>(row.in[0]);
      for (std::int64_t i = 0; i < row.n; ++i) {
        reinterpret_cast<T*>(row.out)[i] = static_cast<T>((in[i] > 0) - (in[i] < 0));
      }
    };
  }
  if (op == "Relu") {
    return [](const Row& row) {
      const T* in = reinterpret_cast<const T*>(row.in[0]);
      for (std::int64_t i = 0; i < row.n; ++i) reinterpret_cast<T*>(row.out)[i] = std::max<T>(in[i], 0);
    };
  }
  return nullptr;
}

// Attribute names with their defaults; ops without attributes are not listed.
struct Attributes {
  std::string_view op;
  std::string_view a;
  double a_default;
  std::string_view b;
  double b_default;
};
constexpr Attributes kAttributes[] = {
    {"LeakyRelu", "alpha", 0.01, "", 0},
    {"ThresholdedRelu", "alpha", 1, "", 0},
    {"Elu", "alpha", 1, "", 0},
    {"Celu", "alpha", 1, "", 0},
    {"HardSigmoid", "alpha", 0.2, "beta", 0.5},
    {"Shrink", "bias", 0, "lambd", 0.5},
    {"com.microsoft.QuickGelu", "alpha", 1.702, "", 0},
    {"Selu", "alpha", 1.67326319217681884765625, "gamma", 1.05070102214813232421875},
};

UnaryParameters ReadParameters(const StepContext& ctx) {
  for (const Attributes& entry : kAttributes) {
    if (entry.op != ctx.step.op()) continue;
    UnaryParameters p;
    p.a = ctx.Float(entry.a, static_cast<float>(entry.a_default));
    if (!entry.b.empty()) p.b = ctx.Float(entry.b, static_cast<float>(entry.b_default));
    return p;
  }
  return {};
}

// Gelu has a second form, by tanh, with a row function of its own name.
std::string RowName(const StepContext& ctx) {
  const std::string& op = ctx.step.op();
  return op == "Gelu" && ctx.Text("approximate", "none") == "tanh" ? "GeluTanh" : op;
}

template <TypeSet types>
Inferred InferUnary(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, types));
  return OneValue(ctx, in[0].type, in[0].shape);
}

Inferred InferGelu(const StepContext& ctx, Infos in) {
  const std::string approximate = ctx.Text("approximate", "none");
  if (approximate != "none" && approximate != "tanh") {
    return ctx.Error(absl::StrCat("approximate is '", approximate, "', wants none or tanh"));
  }
  return InferUnary<kFloatTypes>(ctx, in);
}

Made MakeUnary(const StepContext& ctx, Infos in, Infos out) {
  RowFunction row = FindUnaryRow(RowName(ctx), in[0].type);
  if (row == nullptr) return ctx.Error(absl::StrCat("no kernel for ", proto::DataType_Name(in[0].type)));
  const std::array<std::size_t, 1> sizes = {ElementSize(in[0].type)};
  BroadcastLoop loop(std::span(&in[0].shape, 1), sizes, out[0].shape, sizes[0]);
  return MakeKernel(
      [row, loop, p = ReadParameters(ctx)](In in, Out out, std::byte*) {
        const std::byte* data = in[0].data;
        loop.Run(row, std::span(&data, 1), out[0].data, &p);
        return absl::OkStatus();
      },
      Bytes(0), 0);
}

constexpr TypeSet kSignedNumbers = kFloatTypes | kSignedTypes;

template <TypeSet types = kFloatTypes>
constexpr Operator Unary(std::string_view name, int min_opset = 6) {
  return {.name = name,
          .min_opset = min_opset,
          .max_opset = kNewestOpset,
          .infer = &InferUnary<types>,
          .make = &Widened<&MakeUnary>,
          .types = types};
}

constexpr Operator kOperators[] = {
    Unary<kNumberTypes>("Abs"),
    Unary<kSignedNumbers>("Neg"),
    Unary<kNumberTypes>("Sign", 9),
    Unary<kSignedNumbers>("Relu"),
    Unary("Sqrt"),
    Unary("Reciprocal"),
    Unary("Exp"),
    Unary("Log"),
    Unary("Erf", 9),
    Unary("Sigmoid"),
    Unary("Tanh"),
    Unary("Sin", 7),
    Unary("Cos", 7),
    Unary("Tan", 7),
    Unary("Asin", 7),
    Unary("Acos", 7),
    Unary("Atan", 7),
    Unary("Sinh", 9),
    Unary("Cosh", 9),
    Unary("Asinh", 9),
    Unary("Acosh", 9),
    Unary("Atanh", 9),
    Unary("Floor"),
    Unary("Ceil"),
    Unary("Round", 11),
    Unary("Softplus", 1),
    Unary("Softsign", 1),
    Unary("LeakyRelu"),
    Unary("ThresholdedRelu", 10),
    Unary("Elu"),
    Unary("Celu", 12),
    Unary("Selu"),
    Unary("HardSigmoid"),
    Unary("HardSwish", 14),
    Unary("Shrink", 9),
    Unary("Mish", 18),
    {.name = "Gelu",
     .min_opset = 6,
     .max_opset = kNewestOpset,
     .infer = &InferGelu,
     .make = &Widened<&MakeUnary>,
     .types = kFloatTypes},
    Unary("com.microsoft.QuickGelu", 1),
};

}  // namespace

RowFunction FindUnaryRow(std::string_view op, proto::DataType type) {
  switch (type) {
    case proto::FP32: {
      RowFunction vector = FindVectorRow(op);
      return vector != nullptr ? vector : FindFloat32Row(op);
    }
    case proto::FP64:
      return FindFloat64Row(op);
    case proto::INT32:
      return IntegerRow<std::int32_t>(op);
    case proto::INT64:
      return IntegerRow<std::int64_t>(op);
    case proto::UINT64:
      return op == "Neg" ? nullptr : IntegerRow<std::uint64_t>(op);
    default:
      return nullptr;
  }
}

absl::StatusOr<FusedActivation> FindFusedActivation(const StepContext& ctx) {
  FusedActivation fused;
  const std::string& name = ctx.step.activation();
  if (name.empty()) return fused;
  fused.row = FindVectorRow(name);
  if (fused.row == nullptr) return ctx.Error(absl::StrCat("unknown fused activation '", name, "'"));
  fused.parameters = {ctx.step.activation_alpha(), ctx.step.activation_beta()};
  return fused;
}

std::span<const Operator> UnaryOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
