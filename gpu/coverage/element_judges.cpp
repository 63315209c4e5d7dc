// Element-wise steps: functions of one input, arithmetic and comparisons with broadcasting, Where, Cast.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/coverage/judges.hpp"

namespace troupe::gpu {
namespace {

constexpr std::array<std::string_view, 37> kFunctions = {"com.microsoft.QuickGelu",
                                                         "Abs",
                                                         "Acos",
                                                         "Acosh",
                                                         "Asin",
                                                         "Asinh",
                                                         "Atan",
                                                         "Atanh",
                                                         "Ceil",
                                                         "Celu",
                                                         "Cos",
                                                         "Cosh",
                                                         "Elu",
                                                         "Erf",
                                                         "Exp",
                                                         "Floor",
                                                         "Gelu",
                                                         "HardSigmoid",
                                                         "HardSwish",
                                                         "LeakyRelu",
                                                         "Log",
                                                         "Neg",
                                                         "Reciprocal",
                                                         "Relu",
                                                         "Round",
                                                         "Selu",
                                                         "Shrink",
                                                         "Sigmoid",
                                                         "Sign",
                                                         "Sin",
                                                         "Sinh",
                                                         "Softplus",
                                                         "Softsign",
                                                         "Sqrt",
                                                         "Tan",
                                                         "Tanh",
                                                         "ThresholdedRelu"};
constexpr std::string_view kArithmetic[] = {"Add", "BitShift", "Div", "Max", "Mean",  "Min",
                                            "Mod", "Mul",      "Pow", "Sub", "PRelu", "Sum"};
// Their results are truth values.
constexpr std::string_view kTests[] = {"And",  "Equal",       "Greater", "GreaterOrEqual",
                                       "Less", "LessOrEqual", "Or",      "Xor"};

absl::Status JudgeFunction(const CudaStep& step) {
  TROUPE_RETURN_IF_ERROR(NeedFp32(step));
  if (step.ctx.step.op() == "Gelu" && step.ctx.Text("approximate", "none") != "none")
    return NotCovered(step, "its approximation by tanh");
  return absl::OkStatus();
}

// Only a power's exponent may be of another type than its base.
absl::Status JudgeBinary(const CudaStep& step, bool tests) {
  const std::string& op = step.ctx.step.op();
  const proto::DataType type = step.in[0].type;
  const bool of_integers = (op == "Mod" && step.ctx.Int("fmod", 0) != 1) || op == "BitShift";
  if ((type == proto::BOOL && !tests) || (of_integers && Has(kFloatTypes, type))) return TypeNotCovered(step);
  for (const ValueInfo& info : step.in) {
    if (!info.absent() && info.type != type && op != "Pow")
      return NotCovered(step, "inputs of different types");
  }
  return NeedDimensions(step, step.out[0].shape.size());
}

absl::Status JudgeArithmetic(const CudaStep& step) {
  TROUPE_RETURN_IF_ERROR(JudgeBinary(step, false));
  TROUPE_RETURN_IF_ERROR(NeedFusedFunction(step));
  if (!step.ctx.step.activation().empty() && step.in[0].type != proto::FP32)
    return NotCovered(step, "a function fused to another type than FP32");
  return absl::OkStatus();
}

absl::Status JudgeTest(const CudaStep& step) {
  return JudgeBinary(step, true);
}

// Bounds that the run computes, and those of other types than FP32, are two steps of arithmetic.
absl::Status JudgeClip(const CudaStep& step) {
  const auto computed = [&](std::size_t i) { return Present(step.in, i) && step.in[i].constant == nullptr; };
  if (AllFp32(step.in) && (step.ctx.opset < 11 || (!computed(1) && !computed(2)))) return absl::OkStatus();
  if (step.ctx.opset < 11) return TypeNotCovered(step);
  return JudgeBinary(step, false);
}

absl::Status JudgeWhere(const CudaStep& step) {
  return NeedDimensions(step, step.out[0].shape.size());
}

absl::Status JudgeCast(const CudaStep&) {
  return absl::OkStatus();  // between all numbers and truth values
}

}  // namespace

absl::Status NeedFusedFunction(const CudaStep& step) {
  const std::string& function = step.ctx.step.activation();
  if (function.empty() || function == "Clip" || std::ranges::find(kFunctions, function) != kFunctions.end())
    return absl::OkStatus();
  return NotCovered(step, absl::StrCat("the fused ", function));
}

void AddElementJudges(CudaJudges& judges) {
  for (const std::string_view op : kFunctions) judges[op] = &JudgeFunction;
  for (const std::string_view op : kArithmetic) judges[op] = &JudgeArithmetic;
  for (const std::string_view op : kTests) judges[op] = &JudgeTest;
  judges["Not"] = &JudgeTest;
  judges["Clip"] = &JudgeClip;
  judges["IsNaN"] = judges["IsInf"] = &NeedFp32;
  judges["Where"] = &JudgeWhere;
  judges["Cast"] = judges["CastLike"] = &JudgeCast;
}

}  // namespace troupe::gpu
