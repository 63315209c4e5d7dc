// Steps that move elements: in patterns that are known when a plan is made, and by indices that come with the data.
#include "base/status.hpp"
#include "gpu/coverage/judges.hpp"

namespace troupe::gpu {
namespace {

absl::Status JudgeView(const CudaStep& step) {
  return step.ctx.step.outputs_size() == 1 ? absl::OkStatus() : NotCovered(step, "more than one output");
}

absl::Status JudgeAlways(const CudaStep&) {
  return absl::OkStatus();
}

absl::Status JudgeResize(const CudaStep& step) {
  if (step.ctx.Text("mode", "nearest") == "nearest") return JudgeMovement(step);
  return step.in[0].type == proto::FP32 ? absl::OkStatus() : TypeNotCovered(step);
}

absl::Status NeedPlainScatter(const CudaStep& step) {
  const bool combines =
      step.ctx.step.op().starts_with("Scatter") && step.ctx.Text("reduction", "none") != "none";
  return combines ? NotCovered(step, "scatters that combine") : absl::OkStatus();
}

absl::Status JudgeByElements(const CudaStep& step) {
  TROUPE_RETURN_IF_ERROR(NeedPlainScatter(step));
  return NeedDimensions(step, step.in[1].shape.size());
}

absl::Status JudgeByTuples(const CudaStep& step) {
  TROUPE_RETURN_IF_ERROR(NeedPlainScatter(step));
  return NeedDimensions(step, step.in[0].shape.size());
}

absl::Status JudgeRunningSum(const CudaStep& step) {
  return NeedDimensions(step, step.in[0].shape.size());
}

}  // namespace

absl::Status JudgeMovement(const CudaStep& step) {
  if (step.ctx.step.op() == "Pad") {
    if (Present(step.in, 2) && step.in[2].constant == nullptr)
      return NotCovered(step, "a filler that the run computes");
    // Before opset 11 the filler is an attribute, which the numbers of elements cannot stand for.
    if (step.ctx.Float("value", 0) != 0) return NotCovered(step, "a filler but 0");
  }
  for (const ValueInfo& out : step.out) {
    if (out.absent()) continue;
    if (step.in[0].elements() > kCudaMovedElements || out.elements() > kCudaMovedElements)
      return NotCovered(step, "tensors of its size");
    for (std::size_t i = 1; i < step.in.size(); ++i)
      if (Present(step.in, i) && step.in[i].constant == nullptr)
        return NotCovered(step, "a form that the run decides");
  }
  return absl::OkStatus();
}

void AddMovementJudges(CudaJudges& judges) {
  for (const char* const op : {"DepthToSpace", "Expand", "Pad", "ReverseSequence", "Slice", "SpaceToDepth",
                               "Split", "Tile", "Transpose"})
    judges[op] = &JudgeMovement;
  for (const char* const op : {"Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
    judges[op] = &JudgeView;
  for (const char* const op : {"Concat", "Gather", "OneHot", "Trilu"}) judges[op] = &JudgeAlways;
  judges["Resize"] = judges["Upsample"] = &JudgeResize;
  for (const char* const op : {"GatherElements", "Scatter", "ScatterElements"}) judges[op] = &JudgeByElements;
  judges["GatherND"] = judges["ScatterND"] = &JudgeByTuples;
  judges["CumSum"] = &JudgeRunningSum;
}

}  // namespace troupe::gpu
