// Judges of the families of operators, a source each, and what they share.
#pragma once

#include <map>
#include <string_view>

#include "gpu/coverage/coverage.hpp"

namespace troupe::gpu {

// Says of a step of its operator what CheckCudaCovers says.
using CudaJudge = absl::Status (*)(const CudaStep& step);
using CudaJudges = std::map<std::string_view, CudaJudge>;

void AddElementJudges(CudaJudges& judges);
void AddMovementJudges(CudaJudges& judges);
void AddProductJudges(CudaJudges& judges);
void AddQuantizedJudges(CudaJudges& judges);
void AddRowJudges(CudaJudges& judges);

[[nodiscard]] absl::Status NotCovered(const CudaStep& step, std::string_view what);
// Of the type of input 0, by its name.
[[nodiscard]] absl::Status TypeNotCovered(const CudaStep& step);
// Every input that is there is of FP32.
[[nodiscard]] absl::Status NeedFp32(const CudaStep& step);
[[nodiscard]] bool AllFp32(Infos infos);
[[nodiscard]] absl::Status NeedDimensions(const CudaStep& step, std::size_t rank);
// The activation that was fused into the step, if there is one.
[[nodiscard]] absl::Status NeedFusedFunction(const CudaStep& step);
// Judges for other families' forms.
[[nodiscard]] absl::Status JudgeMovement(const CudaStep& step);

}  // namespace troupe::gpu
