// The kernels of the operators by their names, and what the families share. Which steps they cover is said by gpu/coverage.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "gpu/coverage/coverage.hpp"
#include "gpu/cuda/gpu_kernel.hpp"

namespace troupe::gpu::cuda {

const KernelTable& GpuKernels() {
  static const KernelTable& table = *[] {
    auto* const made = new KernelTable;
    AddElementKernels(*made);
    AddMovementKernels(*made);
    AddIndexKernels(*made);
    AddQuantizedKernels(*made);
    AddResizeKernels(*made);
    AddRowKernels(*made);
    AddWindowKernels(*made);
    AddMatrixKernels(*made);
    return made;
  }();
  return table;
}

absl::Status NoneInLibrary(const GpuStep& step, std::string_view what) {
  const absl::Status named = step.ctx.Error(absl::StrCat("no kernel of the GPU covers ", std::string(what)));
  return absl::UnimplementedError(named.message());
}

absl::Status CopyWhole(const KernelLaunch& launch, In in, Out out) {
  const std::size_t size = BytesOf(out[0]);
  if (size == 0) return absl::OkStatus();
  const Context& context = launch.tools.context;
  return context.Check(
      context.driver().cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(out[0].data),
                                         reinterpret_cast<CUdeviceptr>(in[0].data), size, launch.stream),
      "copying within the GPU");
}

Element ElementOf(proto::DataType type) {
  switch (type) {
    case proto::BOOL:
      return Element::kBool;
    case proto::UINT8:
      return Element::kUint8;
    case proto::INT8:
      return Element::kInt8;
    case proto::INT32:
      return Element::kInt32;
    case proto::INT64:
      return Element::kInt64;
    case proto::FP32:
      return Element::kFp32;
    case proto::FP64:
      return Element::kFp64;
    case proto::UINT16:
      return Element::kUint16;
    case proto::INT16:
      return Element::kInt16;
    case proto::UINT32:
      return Element::kUint32;
    case proto::UINT64:
      return Element::kUint64;
    case proto::FP16:
      return Element::kFp16;
    case proto::BF16:
      return Element::kBf16;
    default:
      TROUPE_CHECK(false, "a type was judged to be a number's or a truth value's");
  }
}

Box BoxOf(const Shape& shape) {
  static_assert(kCudaDimensions == kMaxRank);
  TROUPE_CHECK(shape.size() <= kCudaDimensions, "a shape was judged to have few dimensions");
  Box box;
  box.rank = static_cast<std::int32_t>(shape.size());
  std::ranges::copy(shape, box.size);
  return box;
}

Strides BroadcastStrides(const Shape& in, const Shape& out) {
  const Shape own = RowMajorStrides(in);
  Strides strides;
  const std::size_t lead = out.size() - in.size();
  for (std::size_t i = 0; i < in.size(); ++i) strides.by[lead + i] = in[i] == 1 ? 0 : own[i];
  return strides;
}

}  // namespace troupe::gpu::cuda
