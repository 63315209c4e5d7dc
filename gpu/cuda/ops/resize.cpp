// Resize and Upsample: nearest moves elements, the others interpolate along one axis after the other, with
// the taps that the CPU takes.
#include <algorithm>

#include "gpu/cuda/gpu_kernel.hpp"
#include "gpu/ops/resize_taps.hpp"

namespace troupe::gpu::cuda {
namespace {

// One axis; its tables are on the GPU.
struct Pass {
  TapsArguments arguments;
  std::shared_ptr<const DeviceBlock> index;
  std::shared_ptr<const DeviceBlock> weight;
};

absl::StatusOr<Pass> MakePass(const GpuStep& step, const Shape& shape, std::size_t axis,
                              const ResizeTaps& taps) {
  Pass pass;
  pass.arguments.from = taps.in;
  pass.arguments.to = taps.out;
  pass.arguments.taps = taps.count;
  pass.arguments.inner = Product(std::span(shape).subspan(axis + 1));
  pass.arguments.count = Product(std::span(shape).first(axis)) * taps.out * pass.arguments.inner;
  pass.arguments.filler = step.ctx.Float("extrapolation_value", 0.0F);
  std::vector<std::int64_t> index = taps.index;
  for (std::int64_t i = 0; i < taps.out; ++i) {
    if (taps.outside[static_cast<std::size_t>(i)])
      std::fill_n(index.begin() + i * taps.count, taps.count, -1);
  }
  Context& context = step.tools.context;
  TROUPE_ASSIGN_OR_RETURN(pass.index,
                          DeviceBlock::Upload(context, index.data(), index.size() * sizeof(std::int64_t)));
  TROUPE_ASSIGN_OR_RETURN(
      pass.weight, DeviceBlock::Upload(context, taps.weight.data(), taps.weight.size() * sizeof(float)));
  pass.arguments.index = reinterpret_cast<const std::int64_t*>(pass.index->data());
  pass.arguments.weight = reinterpret_cast<const float*>(pass.weight->data());
  return pass;
}

Made MakeResize(const GpuStep& step) {
  if (step.ctx.Text("mode", "nearest") == "nearest") return MakeMovement(step);
  TROUPE_ASSIGN_OR_RETURN(const std::vector<ResizeTaps> taps, ReadResizeTaps(step.ctx, step.in));
  std::vector<Pass> passes;
  Shape shape = step.in[0].shape;
  std::int64_t largest = 0;
  for (std::size_t axis = 0; axis < shape.size() && step.out[0].elements() > 0; ++axis) {
    if (taps[axis].identity()) continue;
    TROUPE_ASSIGN_OR_RETURN(Pass pass, MakePass(step, shape, axis, taps[axis]));
    largest = std::max(largest, pass.arguments.count);
    shape[axis] = taps[axis].out;
    passes.push_back(std::move(pass));
  }
  // Between the passes, by turns.
  const Bytes half = passes.size() < 2
                         ? Bytes(0)
                         : AlignUp(Bytes(static_cast<std::uint64_t>(largest) * sizeof(float)), Bytes(256));
  return MakeGpu(
      [passes, half](const KernelLaunch& launch, In in, Out out, std::byte* scratch) -> absl::Status {
        if (passes.empty()) return CopyWhole(launch, in, out);
        const float* from = Data<float>(in[0]);
        for (std::size_t i = 0; i < passes.size(); ++i) {
          TapsArguments now = passes[i].arguments;
          now.in = from;
          now.out = i + 1 == passes.size() ? MutableData<float>(out[0])
                                           : reinterpret_cast<float*>(scratch + (i % 2) * half.count());
          TROUPE_RETURN_IF_ERROR(launch.Put(now));
          from = now.out;
        }
        return absl::OkStatus();
      },
      -1, -1, half * 2);
}

}  // namespace

void AddResizeKernels(KernelTable& table) {
  table["Resize"] = table["Upsample"] = &MakeResize;
}

}  // namespace troupe::gpu::cuda
