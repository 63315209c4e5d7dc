// Products of matrices, convolutions, pooling and what goes over planes of channels.
#include <algorithm>
#include <limits>
#include <span>

#include "base/status.hpp"
#include "gpu/coverage/judges.hpp"
#include "gpu/ops/window.hpp"

namespace troupe::gpu {
namespace {

absl::Status JudgeMatMul(const CudaStep& step) {
  TROUPE_RETURN_IF_ERROR(NeedFp32(step));
  for (std::size_t i = 0; i < 2; ++i)
    if (step.in[i].shape.size() > kCudaDimensions + 2) return NotCovered(step, "so many dimensions");
  return NeedFusedFunction(step);
}

absl::Status JudgeGemm(const CudaStep& step) {
  TROUPE_RETURN_IF_ERROR(NeedFp32(step));
  return NeedFusedFunction(step);
}

// cuDNN pads both sides alike. More after the end than a window reaches is none.
absl::Status JudgePadding(const CudaStep& step) {
  const Shape& w = step.in[1].shape;
  const std::span spatial = std::span(step.in[0].shape).subspan(2);
  TROUPE_ASSIGN_OR_RETURN(const Window window, ReadWindow(step.ctx, spatial, Shape(w.begin() + 2, w.end())));
  for (std::size_t d = 0; d < spatial.size(); ++d) {
    const std::int64_t reach = (window.kernel[d] - 1) * window.dilations[d] + 1;
    const std::int64_t room = spatial[d] + 2 * window.begin[d] - reach;
    if (room < 0 || room / window.strides[d] + 1 != window.out[d])
      return NotCovered(step, "padding that differs between begin and end");
  }
  return absl::OkStatus();
}

absl::Status JudgeConv(const CudaStep& step) {
  TROUPE_RETURN_IF_ERROR(NeedFp32(step));
  if (step.out[0].elements() == 0) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(JudgePadding(step));
  const auto large = [](std::int64_t dim) { return dim > std::numeric_limits<std::int32_t>::max(); };
  for (std::size_t i = 0; i < 2; ++i)
    if (std::ranges::any_of(step.in[i].shape, large)) return NotCovered(step, "its size");
  return NeedFusedFunction(step);
}

absl::Status JudgeFusable(const CudaStep& step) {
  TROUPE_RETURN_IF_ERROR(NeedFp32(step));
  return NeedFusedFunction(step);
}

absl::Status JudgePool(const CudaStep& step) {
  TROUPE_RETURN_IF_ERROR(NeedFp32(step));
  const bool indices = step.out.size() > 1 && !step.out[1].absent();
  return indices ? NotCovered(step, "the indices of its maxima") : absl::OkStatus();
}

}  // namespace

void AddProductJudges(CudaJudges& judges) {
  judges["MatMul"] = &JudgeMatMul;
  judges["Gemm"] = &JudgeGemm;
  judges["Conv"] = &JudgeConv;
  judges["ConvTranspose"] = judges["BatchNormalization"] = &JudgeFusable;
  judges["MaxPool"] = judges["AveragePool"] = &JudgePool;
  judges["LRN"] = &NeedFp32;
}

}  // namespace troupe::gpu
