#include "gpu/coverage/coverage.hpp"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/coverage/judges.hpp"

namespace troupe::gpu {
namespace {

const CudaJudges& Judges() {
  static const CudaJudges& judges = *[] {
    auto* const made = new CudaJudges;
    AddElementJudges(*made);
    AddMovementJudges(*made);
    AddProductJudges(*made);
    AddQuantizedJudges(*made);
    AddRowJudges(*made);
    return made;
  }();
  return judges;
}

}  // namespace

absl::Status CheckCudaCovers(const CudaStep& step) {
  for (const Infos infos : {step.in, step.out}) {
    for (const ValueInfo& info : infos) {
      if (info.bounded) return NotCovered(step, "shapes that depend on data");
      if (info.type == proto::BYTES) return NotCovered(step, "texts");
    }
  }
  const auto judge = Judges().find(step.ctx.step.op());
  return judge == Judges().end() ? NotCovered(step, "this operator") : judge->second(step);
}

std::vector<std::string_view> CudaOperators() {
  std::vector<std::string_view> names;
  for (const auto& [name, judge] : Judges()) names.push_back(name);
  return names;
}

absl::Status NotCovered(const CudaStep& step, std::string_view what) {
  const absl::Status named = step.ctx.Error(absl::StrCat("no kernel of the GPU covers ", std::string(what)));
  return absl::UnimplementedError(named.message());
}

absl::Status TypeNotCovered(const CudaStep& step) {
  return NotCovered(step, proto::DataType_Name(step.in[0].type));
}

bool AllFp32(Infos infos) {
  return std::ranges::all_of(infos,
                             [](const ValueInfo& info) { return info.absent() || info.type == proto::FP32; });
}

absl::Status NeedFp32(const CudaStep& step) {
  return AllFp32(step.in) ? absl::OkStatus() : TypeNotCovered(step);
}

absl::Status NeedDimensions(const CudaStep& step, std::size_t rank) {
  return rank <= kCudaDimensions ? absl::OkStatus() : NotCovered(step, absl::StrCat(rank, " dimensions"));
}

}  // namespace troupe::gpu
