// Element-wise steps: functions of one input, arithmetic and comparisons with broadcasting, Where, Cast.
#include <algorithm>
#include <array>
#include <limits>

#include "base/check.hpp"
#include "gpu/cuda/gpu_kernel.hpp"
#include "gpu/cuda/ops/boxes.hpp"

namespace troupe::gpu::cuda {
namespace {

// Names of attributes with their defaults, as gpu/ops/unary.cpp reads them.
struct UnaryEntry {
  std::string_view name;
  UnaryOp op;
  const char* a = "";
  float a_default = 0;
  const char* b = "";
  float b_default = 0;
};
constexpr UnaryEntry kUnary[] = {
    {"Abs", UnaryOp::kAbs},
    {"Neg", UnaryOp::kNeg},
    {"Sqrt", UnaryOp::kSqrt},
    {"Reciprocal", UnaryOp::kReciprocal},
    {"Exp", UnaryOp::kExp},
    {"Log", UnaryOp::kLog},
    {"Erf", UnaryOp::kErf},
    {"Gelu", UnaryOp::kGelu},
    {"Sigmoid", UnaryOp::kSigmoid},
    {"Tanh", UnaryOp::kTanh},
    {"Sin", UnaryOp::kSin},
    {"Tan", UnaryOp::kTan},
    {"Asin", UnaryOp::kAsin},
    {"Acos", UnaryOp::kAcos},
    {"Atan", UnaryOp::kAtan},
    {"Sinh", UnaryOp::kSinh},
    {"Cosh", UnaryOp::kCosh},
    {"Asinh", UnaryOp::kAsinh},
    {"Acosh", UnaryOp::kAcosh},
    {"Atanh", UnaryOp::kAtanh},
    {"Cos", UnaryOp::kCos},
    {"Floor", UnaryOp::kFloor},
    {"Ceil", UnaryOp::kCeil},
    {"Round", UnaryOp::kRound},
    {"Sign", UnaryOp::kSign},
    {"Relu", UnaryOp::kRelu},
    {"Softplus", UnaryOp::kSoftplus},
    {"Softsign", UnaryOp::kSoftsign},
    {"LeakyRelu", UnaryOp::kLeakyRelu, "alpha", 0.01F},
    {"ThresholdedRelu", UnaryOp::kThresholdedRelu, "alpha", 1},
    {"Elu", UnaryOp::kElu, "alpha", 1},
    {"Celu", UnaryOp::kCelu, "alpha", 1},
    {"Selu", UnaryOp::kSelu, "alpha", 1.67326319217681884765625F, "gamma", 1.05070102214813232421875F},
    {"HardSigmoid", UnaryOp::kHardSigmoid, "alpha", 0.2F, "beta", 0.5F},
    {"HardSwish", UnaryOp::kHardSwish},
    {"com.microsoft.QuickGelu", UnaryOp::kQuickGelu, "alpha", 1.702F},
    {"Shrink", UnaryOp::kShrink, "bias", 0, "lambd", 0.5F},
};

Made MakeFunction(const Function& function) {
  return MakeGpu(
      [function](const KernelLaunch& launch, In in, Out out, std::byte*) {
        return launch.Put(InFours(
            UnaryArguments{Elements(out[0]), Data<float>(in[0]), MutableData<float>(out[0]), function}));
      },
      0);
}

Made MakeUnary(const GpuStep& step) {
  for (const UnaryEntry& entry : kUnary) {
    if (entry.name != step.ctx.step.op()) continue;
    Function function{entry.op};
    if (*entry.a != 0) function.a = step.ctx.Float(entry.a, entry.a_default);
    if (*entry.b != 0) function.b = step.ctx.Float(entry.b, entry.b_default);
    return MakeFunction(function);
  }
  return step.ctx.Error("has no function here, although it was judged to have one");
}

// A bound of Clip: an attribute to opset 10, an input that must be known from then on.
float Bound(const GpuStep& step, const char* attribute, std::size_t index, float none) {
  if (step.ctx.opset < 11) return step.ctx.Float(attribute, none);
  if (!Present(step.in, index)) return none;
  return *reinterpret_cast<const float*>(step.in[index].constant);
}

struct BinaryEntry {
  std::string_view name;
  BinaryOp op;
};
constexpr BinaryEntry kBinary[] = {
    {"Add", BinaryOp::kAdd},
    {"Sub", BinaryOp::kSub},
    {"Mul", BinaryOp::kMul},
    {"Div", BinaryOp::kDiv},
    {"Pow", BinaryOp::kPow},
    {"Max", BinaryOp::kMax},
    {"Min", BinaryOp::kMin},
    {"Sum", BinaryOp::kAdd},
    {"Mean", BinaryOp::kAdd},
    {"PRelu", BinaryOp::kPRelu},
    {"Mod", BinaryOp::kMod},
    {"BitShift", BinaryOp::kShiftLeft},
    {"Equal", BinaryOp::kEqual},
    {"Less", BinaryOp::kLess},
    {"LessOrEqual", BinaryOp::kLessOrEqual},
    {"Greater", BinaryOp::kGreater},
    {"GreaterOrEqual", BinaryOp::kGreaterOrEqual},
    {"And", BinaryOp::kAnd},
    {"Or", BinaryOp::kOr},
    {"Xor", BinaryOp::kXor},
};

// What two inputs need. Only a power's exponent may be of another type than its base.
BinaryArguments ReadBinary(const GpuStep& step, BinaryOp op) {
  BinaryArguments arguments;
  arguments.op = op;
  arguments.type = arguments.other = ElementOf(step.in[0].type);
  for (const ValueInfo& info : step.in)
    if (!info.absent()) arguments.other = ElementOf(info.type);
  arguments.box = BoxOf(step.out[0].shape);
  return arguments;
}

// By its name and attributes.
BinaryOp BinaryOf(const GpuStep& step) {
  const std::string& name = step.ctx.step.op();
  if (name == "Mod" && step.ctx.Int("fmod", 0) == 1) return BinaryOp::kFmod;
  if (name == "BitShift" && step.ctx.Text("direction", "") != "LEFT") return BinaryOp::kShiftRight;
  BinaryOp op{};
  for (const BinaryEntry& entry : kBinary) {
    if (entry.name == name) op = entry.op;
  }
  return op;
}

// Two inputs or more: the first two into the output, then each further one onto it.
Made MakeBinary(const GpuStep& step) {
  const BinaryArguments arguments = ReadBinary(step, BinaryOf(step));
  Function after = FusedFunction(step);
  const double scale = step.ctx.step.op() == "Mean" ? 1.0 / static_cast<double>(step.in.size()) : 1.0;
  if (scale != 1.0) after = {UnaryOp::kScale, static_cast<float>(scale)};
  if (step.in.size() == 1) {
    return MakeGpu(
        [](const KernelLaunch& launch, In in, Out out, std::byte*) { return CopyWhole(launch, in, out); });
  }
  const Shape& shape = step.out[0].shape;
  std::vector<BinaryArguments> passes;
  for (std::size_t i = 1; i < step.in.size(); ++i) {
    BinaryArguments pass = arguments;
    pass.count = step.out[0].elements();
    pass.in_a = BroadcastStrides(i == 1 ? step.in[0].shape : shape, shape);
    pass.in_b = BroadcastStrides(step.in[i].shape, shape);
    if (i + 1 == step.in.size()) {
      pass.after = after;
      pass.scale = scale;
    }
    Simplify(pass.box, {&pass.in_a, &pass.in_b});
    passes.push_back(pass);
  }
  const bool in_place =
      step.in.size() == 2 && step.in[0].shape == shape && step.in[0].type == step.out[0].type;
  return MakeGpu(
      [passes](const KernelLaunch& launch, In in, Out out, std::byte*) {
        for (std::size_t i = 1; i < in.size(); ++i) {
          BinaryArguments now = passes[i - 1];
          now.out = out[0].data;
          now.a = i == 1 ? in[0].data : out[0].data;
          now.b = in[i].data;
          TROUPE_RETURN_IF_ERROR(launch.Put(InFours(now)));
        }
        return absl::OkStatus();
      },
      in_place ? 0 : -1);
}

// Bounds that the run computes, or of other types than FP32: the larger of x and the lower one, then the
// smaller of that and the upper one.
Made MakeClipBetween(const GpuStep& step) {
  BinaryArguments arguments = ReadBinary(step, BinaryOp::kMax);
  arguments.in_a = BroadcastStrides(step.in[0].shape, step.in[0].shape);
  Simplify(arguments.box, {&arguments.in_a, &arguments.in_b});
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) -> absl::Status {
    BinaryArguments now = arguments;
    now.count = Elements(out[0]);
    now.a = in[0].data;
    now.out = out[0].data;
    for (const auto& [index, op] : {std::pair(std::size_t{1}, BinaryOp::kMax), {2, BinaryOp::kMin}}) {
      if (!Present(in, index)) continue;
      now.op = op;
      now.b = in[index].data;
      TROUPE_RETURN_IF_ERROR(launch.Put(InFours(now)));
      now.a = out[0].data;
    }
    return now.a == out[0].data ? absl::OkStatus() : CopyWhole(launch, in, out);
  });
}

bool IsFp32(Infos infos) {
  return std::ranges::all_of(infos,
                             [](const ValueInfo& info) { return info.absent() || info.type == proto::FP32; });
}

Made MakeClip(const GpuStep& step) {
  const auto computed = [&](std::size_t i) { return Present(step.in, i) && step.in[i].constant == nullptr; };
  if (!IsFp32(step.in) || (step.ctx.opset >= 11 && (computed(1) || computed(2))))
    return MakeClipBetween(step);
  constexpr float kAll = std::numeric_limits<float>::infinity();
  Function function{UnaryOp::kClip};
  function.a = Bound(step, "min", 1, -kAll);
  function.b = Bound(step, "max", 2, kAll);
  return MakeFunction(function);
}

// IsNaN, IsInf.
Made MakeTest(const GpuStep& step) {
  TestArguments arguments;
  arguments.nan = step.ctx.step.op() == "IsNaN";
  arguments.positive = !arguments.nan && step.ctx.Int("detect_positive", 1) != 0;
  arguments.negative = !arguments.nan && step.ctx.Int("detect_negative", 1) != 0;
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    TestArguments now = arguments;
    now.count = Elements(out[0]);
    now.in = Data<float>(in[0]);
    now.out = MutableData<std::uint8_t>(out[0]);
    return launch.Put(now);
  });
}

Made MakeNot(const GpuStep& step) {
  BinaryArguments arguments = ReadBinary(step, BinaryOp::kNor);
  arguments.in_a = arguments.in_b = BroadcastStrides(step.in[0].shape, step.out[0].shape);
  Simplify(arguments.box, {&arguments.in_a, &arguments.in_b});
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    BinaryArguments now = arguments;
    now.count = Elements(out[0]);
    now.a = now.b = in[0].data;
    now.out = out[0].data;
    return launch.Put(now);
  });
}

Made MakeWhere(const GpuStep& step) {
  WhereArguments arguments;
  arguments.element_size = static_cast<std::int32_t>(ElementSize(step.out[0].type));
  const Shape& shape = step.out[0].shape;
  arguments.box = BoxOf(shape);
  arguments.in_condition = BroadcastStrides(step.in[0].shape, shape);
  arguments.in_a = BroadcastStrides(step.in[1].shape, shape);
  arguments.in_b = BroadcastStrides(step.in[2].shape, shape);
  Simplify(arguments.box, {&arguments.in_condition, &arguments.in_a, &arguments.in_b});
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    WhereArguments now = arguments;
    now.count = Elements(out[0]);
    now.condition = Data<std::uint8_t>(in[0]);
    now.a = in[1].data;
    now.b = in[2].data;
    now.out = out[0].data;
    return launch.Put(now);
  });
}

Made MakeCast(const GpuStep& step) {
  const Element from = ElementOf(step.in[0].type);
  const Element to = ElementOf(step.out[0].type);
  return MakeGpu([from, to](const KernelLaunch& launch, In in, Out out, std::byte*) {
    return launch.Put(CastArguments{Elements(out[0]), from, to, in[0].data, out[0].data});
  });
}

}  // namespace

UnaryOp FindUnary(std::string_view op) {
  if (op == "Clip") return UnaryOp::kClip;
  for (const UnaryEntry& entry : kUnary) {
    if (entry.name == op) return entry.op;
  }
  return UnaryOp::kNone;
}

Function FusedFunction(const GpuStep& step) {
  const proto::Step& fused = step.ctx.step;
  if (fused.activation().empty()) return {};
  const UnaryOp op = FindUnary(fused.activation());
  TROUPE_CHECK(op != UnaryOp::kNone, "an activation was judged to have a function here");
  return {op, fused.activation_alpha(), fused.activation_beta()};
}

void AddElementKernels(KernelTable& table) {
  for (const UnaryEntry& entry : kUnary) table[entry.name] = &MakeUnary;
  for (const BinaryEntry& entry : kBinary) table[entry.name] = &MakeBinary;
  table["Clip"] = &MakeClip;
  table["IsNaN"] = table["IsInf"] = &MakeTest;
  table["Not"] = &MakeNot;
  table["Where"] = &MakeWhere;
  table["Cast"] = &MakeCast;
  table["CastLike"] = &MakeCast;
}

}  // namespace troupe::gpu::cuda
