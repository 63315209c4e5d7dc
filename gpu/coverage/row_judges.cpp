// Steps over rows: softmax, layer normalisation, reductions, the best of a row.
#include "base/status.hpp"
#include "gpu/coverage/judges.hpp"

namespace troupe::gpu {
namespace {

absl::Status JudgeLayerNorm(const CudaStep& step) {
  TROUPE_RETURN_IF_ERROR(NeedFp32(step));
  return AllFp32(step.out) ? absl::OkStatus() : NotCovered(step, "statistics of another type");
}

// Other inputs are axes and counts.
absl::Status JudgeFirstInput(const CudaStep& step) {
  return step.in[0].type == proto::FP32 ? absl::OkStatus() : TypeNotCovered(step);
}

absl::Status JudgeReduce(const CudaStep& step) {
  TROUPE_RETURN_IF_ERROR(JudgeFirstInput(step));
  return NeedDimensions(step, step.in[0].shape.size());
}

}  // namespace

void AddRowJudges(CudaJudges& judges) {
  judges["Softmax"] = judges["LogSoftmax"] = &NeedFp32;
  judges["LayerNormalization"] = &JudgeLayerNorm;
  for (const char* const op :
       {"GlobalAveragePool", "GlobalMaxPool", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
        "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"})
    judges[op] = &JudgeReduce;
  judges["ArgMax"] = judges["ArgMin"] = judges["TopK"] = &JudgeFirstInput;
}

}  // namespace troupe::gpu
