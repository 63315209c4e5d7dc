// Steps on quantised tensors. The kernels know one scale for all or for each channel, in FP32, and integers of 8 bits (and sums
// of 32).
#include "base/status.hpp"
#include "gpu/coverage/judges.hpp"
#include "gpu/ops/quantized.hpp"

namespace troupe::gpu {
namespace {

absl::Status JudgeStored(const CudaStep& step, const ValueInfo& stored) {
  TROUPE_ASSIGN_OR_RETURN(const QuantizedAxis axis, ReadQuantizedAxis(step.ctx, step.in, 1));
  if (axis.block != 0) return NotCovered(step, "scales of blocks");
  if (step.in[1].type != proto::FP32) return NotCovered(step, "scales of another type than FP32");
  const bool known = stored.type == proto::UINT8 || stored.type == proto::INT8 || stored.type == proto::INT32;
  return known ? absl::OkStatus() : NotCovered(step, proto::DataType_Name(stored.type));
}

absl::Status JudgeQuantize(const CudaStep& step) {
  if (step.in[0].type != proto::FP32 && step.in[0].type != proto::INT32) return TypeNotCovered(step);
  return JudgeStored(step, step.out[0]);
}

absl::Status JudgeDequantize(const CudaStep& step) {
  TROUPE_RETURN_IF_ERROR(JudgeStored(step, step.in[0]));
  if (step.out[0].type != proto::FP32) return NotCovered(step, proto::DataType_Name(step.out[0].type));
  return absl::OkStatus();
}

absl::Status JudgeDynamicQuantize(const CudaStep&) {
  return absl::OkStatus();
}

// A zero point is one number, or one for each row of A, or for each column of B.
absl::Status JudgeIntegerProduct(const CudaStep& step) {
  const Shape& a = step.in[0].shape;
  const Shape& b = step.in[1].shape;
  if (a.size() < 2 || b.size() < 2) return NotCovered(step, "vectors");
  for (const std::size_t zero : {2, 3}) {
    if (!Present(step.in, zero) || step.in[zero].elements() == 1) continue;
    const std::int64_t each = zero == 2 ? a[a.size() - 2] : b.back();
    if (step.in[zero].shape != Shape{each}) return NotCovered(step, "zero points of that shape");
  }
  return NeedDimensions(step, step.out[0].shape.size() - 2);
}

}  // namespace

void AddQuantizedJudges(CudaJudges& judges) {
  judges["QuantizeLinear"] = &JudgeQuantize;
  judges["DequantizeLinear"] = &JudgeDequantize;
  judges["DynamicQuantizeLinear"] = &JudgeDynamicQuantize;
  judges["MatMulInteger"] = &JudgeIntegerProduct;
}

}  // namespace troupe::gpu
