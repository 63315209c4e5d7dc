// Element-wise steps: functions of one input, arithmetic and comparisons with broadcasting, Where, Cast.
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gpu/cuda/gpu_kernel.hpp"

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
    {"Shrink", UnaryOp::kShrink, "bias", 0, "lambd", 0.5F},
};

Made MakeFunction(const Function& function) {
  return MakeGpu(
      [function](const KernelLaunch& launch, In in, Out out, std::byte*) {
        return launch.tools.kernels->Launch(
            launch.stream,
            UnaryArguments{Elements(out[0]), Data<float>(in[0]), MutableData<float>(out[0]), function});
      },
      0);
}

Made MakeUnary(const GpuStep& step) {
  if (!IsFp32(step.in)) return NotCovered(step, proto::DataType_Name(step.in[0].type));
  for (const UnaryEntry& entry : kUnary) {
    if (entry.name != step.ctx.step.op()) continue;
    Function function{entry.op};
    if (*entry.a != 0) function.a = step.ctx.Float(entry.a, entry.a_default);
    if (*entry.b != 0) function.b = step.ctx.Float(entry.b, entry.b_default);
    return MakeFunction(function);
  }
  return NotCovered(step, "it");
}

// A bound of Clip: an attribute to opset 10, an input that must be known from then on.
absl::StatusOr<float> Bound(const GpuStep& step, const char* attribute, std::size_t index, float none) {
  if (step.ctx.opset < 11) return step.ctx.Float(attribute, none);
  if (!Present(step.in, index)) return none;
  if (step.in[index].constant == nullptr) return NotCovered(step, "bounds that the run computes");
  return *reinterpret_cast<const float*>(step.in[index].constant);
}

Made MakeClip(const GpuStep& step) {
  if (!IsFp32(step.in)) return NotCovered(step, proto::DataType_Name(step.in[0].type));
  constexpr float kAll = std::numeric_limits<float>::infinity();
  Function function{UnaryOp::kClip};
  TROUPE_ASSIGN_OR_RETURN(function.a, Bound(step, "min", 1, -kAll));
  TROUPE_ASSIGN_OR_RETURN(function.b, Bound(step, "max", 2, kAll));
  return MakeFunction(function);
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
    {"Equal", BinaryOp::kEqual},
    {"Less", BinaryOp::kLess},
    {"LessOrEqual", BinaryOp::kLessOrEqual},
    {"Greater", BinaryOp::kGreater},
    {"GreaterOrEqual", BinaryOp::kGreaterOrEqual},
    {"And", BinaryOp::kAnd},
    {"Or", BinaryOp::kOr},
    {"Xor", BinaryOp::kXor},
};

bool OnIntegers(BinaryOp op) {
  return op != BinaryOp::kPow && op != BinaryOp::kPRelu;
}

// What two inputs of one type need; NotCovered for other types.
absl::StatusOr<BinaryArguments> ReadBinary(const GpuStep& step, BinaryOp op) {
  BinaryArguments arguments;
  arguments.op = op;
  const std::optional<Element> type = ElementOf(step.in[0].type);
  const bool truth = op >= BinaryOp::kEqual;
  const bool covered = type == Element::kFp32 || (type == Element::kBool && truth) ||
                       ((type == Element::kInt64 || type == Element::kInt32) && OnIntegers(op));
  if (!covered) return NotCovered(step, proto::DataType_Name(step.in[0].type));
  for (const ValueInfo& info : step.in) {
    if (info.type != step.in[0].type) return NotCovered(step, "inputs of different types");
  }
  arguments.type = *type;
  TROUPE_ASSIGN_OR_RETURN(arguments.box, BoxOf(step, step.out[0].shape));
  return arguments;
}

// Two inputs or more: the first two into the output, then each further one onto it.
Made MakeBinary(const GpuStep& step) {
  BinaryOp op{};
  for (const BinaryEntry& entry : kBinary) {
    if (entry.name == step.ctx.step.op()) op = entry.op;
  }
  TROUPE_ASSIGN_OR_RETURN(BinaryArguments arguments, ReadBinary(step, op));
  TROUPE_ASSIGN_OR_RETURN(Function after, FusedFunction(step));
  if (step.ctx.step.op() == "Mean") after = {UnaryOp::kScale, 1.0F / static_cast<float>(step.in.size())};
  if (step.in.size() == 1) {
    return MakeGpu(
        [](const KernelLaunch& launch, In in, Out out, std::byte*) { return CopyWhole(launch, in, out); });
  }
  const Shape& shape = step.out[0].shape;
  std::vector<Strides> strides;
  for (const ValueInfo& info : step.in) strides.push_back(BroadcastStrides(info.shape, shape));
  const Strides dense = BroadcastStrides(shape, shape);
  const bool in_place =
      step.in.size() == 2 && step.in[0].shape == shape && step.in[0].type == step.out[0].type;
  return MakeGpu(
      [arguments, after, strides, dense](const KernelLaunch& launch, In in, Out out, std::byte*) {
        BinaryArguments now = arguments;
        now.count = Elements(out[0]);
        now.out = out[0].data;
        for (std::size_t i = 1; i < in.size(); ++i) {
          now.a = i == 1 ? in[0].data : out[0].data;
          now.in_a = i == 1 ? strides[0] : dense;
          now.b = in[i].data;
          now.in_b = strides[i];
          if (i + 1 == in.size()) now.after = after;
          TROUPE_RETURN_IF_ERROR(launch.tools.kernels->Launch(launch.stream, now));
        }
        return absl::OkStatus();
      },
      in_place ? 0 : -1);
}

Made MakeNot(const GpuStep& step) {
  TROUPE_ASSIGN_OR_RETURN(BinaryArguments arguments, ReadBinary(step, BinaryOp::kNor));
  arguments.in_a = arguments.in_b = BroadcastStrides(step.in[0].shape, step.out[0].shape);
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    BinaryArguments now = arguments;
    now.count = Elements(out[0]);
    now.a = now.b = in[0].data;
    now.out = out[0].data;
    return launch.tools.kernels->Launch(launch.stream, now);
  });
}

Made MakeWhere(const GpuStep& step) {
  WhereArguments arguments;
  arguments.element_size = static_cast<std::int32_t>(ElementSize(step.out[0].type));
  const Shape& shape = step.out[0].shape;
  TROUPE_ASSIGN_OR_RETURN(arguments.box, BoxOf(step, shape));
  arguments.in_condition = BroadcastStrides(step.in[0].shape, shape);
  arguments.in_a = BroadcastStrides(step.in[1].shape, shape);
  arguments.in_b = BroadcastStrides(step.in[2].shape, shape);
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    WhereArguments now = arguments;
    now.count = Elements(out[0]);
    now.condition = Data<std::uint8_t>(in[0]);
    now.a = in[1].data;
    now.b = in[2].data;
    now.out = out[0].data;
    return launch.tools.kernels->Launch(launch.stream, now);
  });
}

Made MakeCast(const GpuStep& step) {
  const std::optional<Element> from = ElementOf(step.in[0].type);
  const std::optional<Element> to = ElementOf(step.out[0].type);
  if (!from || !to) {
    return NotCovered(step, absl::StrCat(proto::DataType_Name(step.in[0].type), " to ",
                                         proto::DataType_Name(step.out[0].type)));
  }
  return MakeGpu([from = *from, to = *to](const KernelLaunch& launch, In in, Out out, std::byte*) {
    return launch.tools.kernels->Launch(launch.stream,
                                        CastArguments{Elements(out[0]), from, to, in[0].data, out[0].data});
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

absl::StatusOr<Function> FusedFunction(const GpuStep& step) {
  const proto::Step& fused = step.ctx.step;
  if (fused.activation().empty()) return Function{};
  const UnaryOp op = FindUnary(fused.activation());
  if (op == UnaryOp::kNone) return NotCovered(step, absl::StrCat("the fused ", fused.activation()));
  return Function{op, fused.activation_alpha(), fused.activation_beta()};
}

void AddElementKernels(KernelTable& table) {
  for (const UnaryEntry& entry : kUnary) table[entry.name] = &MakeUnary;
  for (const BinaryEntry& entry : kBinary) table[entry.name] = &MakeBinary;
  table["Clip"] = &MakeClip;
  table["Not"] = &MakeNot;
  table["Where"] = &MakeWhere;
  table["Cast"] = &MakeCast;
  table["CastLike"] = &MakeCast;
}

}  // namespace troupe::gpu::cuda
