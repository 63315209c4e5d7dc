// Convolution by cuDNN; pooling, batch and local response normalisation by our own kernels, which know every
// padding that ONNX does.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/cuda/convolution.hpp"
#include "gpu/cuda/gpu_kernel.hpp"
#include "gpu/ops/window.hpp"

namespace troupe::gpu::cuda {
namespace {

// The kernels count three spatial dimensions: the dimensions of a network are the last of them.
template <typename Arguments>
void SetWindow(std::span<const std::int64_t> spatial, const Window& window, Arguments& arguments) {
  const std::size_t lead = 3 - spatial.size();
  for (std::size_t d = 0; d < spatial.size(); ++d) {
    arguments.size[lead + d] = spatial[d];
    arguments.out_size[lead + d] = window.out[d];
    arguments.kernel[lead + d] = window.kernel[d];
    arguments.stride[lead + d] = window.strides[d];
    arguments.dilation[lead + d] = window.dilations[d];
    arguments.begin[lead + d] = window.begin[d];
    if constexpr (requires { arguments.end; }) arguments.end[lead + d] = window.end[d];
  }
}

Made MakePool(const GpuStep& step) {
  const std::span spatial = std::span(step.in[0].shape).subspan(2);
  TROUPE_ASSIGN_OR_RETURN(const Window window, ReadWindow(step.ctx, spatial, step.ctx.Ints("kernel_shape")));
  PoolArguments arguments;
  arguments.op = step.ctx.step.op() == "MaxPool" ? PoolOp::kMax : PoolOp::kAverage;
  arguments.count_padding = step.ctx.Int("count_include_pad", 0) != 0;
  SetWindow(spatial, window, arguments);
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    PoolArguments now = arguments;
    now.count = Elements(out[0]);
    now.in = Data<float>(in[0]);
    now.out = MutableData<float>(out[0]);
    return launch.Put(now);
  });
}

// By a kernel of our own, which knows every padding: most networks have few of them, with small windows.
Made MakeConvTranspose(const GpuStep& step) {
  const Shape& x = step.in[0].shape;
  const Shape& w = step.in[1].shape;
  const std::span spatial = std::span(x).subspan(2);
  TROUPE_ASSIGN_OR_RETURN(const Window window,
                          ReadTransposedWindow(step.ctx, spatial, Shape(w.begin() + 2, w.end())));
  ConvTransposeArguments arguments;
  arguments.after = FusedFunction(step);
  arguments.groups = step.ctx.Int("group", 1);
  arguments.in_per_group = x[1] / arguments.groups;
  arguments.out_per_group = w[1];
  SetWindow(spatial, window, arguments);
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    ConvTransposeArguments now = arguments;
    now.count = Elements(out[0]);
    now.in = Data<float>(in[0]);
    now.weights = Data<float>(in[1]);
    now.bias = Present(in, 2) ? Data<float>(in[2]) : nullptr;
    now.out = MutableData<float>(out[0]);
    return launch.Put(now);
  });
}

Made MakeBatchNorm(const GpuStep& step) {
  BatchNormArguments arguments;
  arguments.channels = step.in[0].shape[1];
  arguments.plane = Product(std::span(step.in[0].shape).subspan(2));
  arguments.epsilon = step.ctx.Float("epsilon", 1e-5F);
  arguments.after = FusedFunction(step);
  return MakeGpu(
      [arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
        BatchNormArguments now = arguments;
        now.count = Elements(out[0]);
        now.in = Data<float>(in[0]);
        now.out = MutableData<float>(out[0]);
        now.scale = Data<float>(in[1]);
        now.shift = Data<float>(in[2]);
        now.mean = Data<float>(in[3]);
        now.variance = Data<float>(in[4]);
        return launch.Put(now);
      },
      0);
}

Made MakeLrn(const GpuStep& step) {
  LrnArguments arguments;
  arguments.channels = step.in[0].shape[1];
  arguments.plane = Product(std::span(step.in[0].shape).subspan(2));
  arguments.size = step.ctx.Int("size", 1);
  arguments.alpha = step.ctx.Float("alpha", 1e-4F) / static_cast<float>(arguments.size);
  arguments.beta = step.ctx.Float("beta", 0.75F);
  arguments.bias = step.ctx.Float("bias", 1);
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    LrnArguments now = arguments;
    now.count = Elements(out[0]);
    now.in = Data<float>(in[0]);
    now.out = MutableData<float>(out[0]);
    return launch.Put(now);
  });
}

}  // namespace

void AddWindowKernels(KernelTable& table) {
  table["Conv"] = &MakeConvolution;
  table["ConvTranspose"] = &MakeConvTranspose;
  table["MaxPool"] = table["AveragePool"] = &MakePool;
  table["BatchNormalization"] = &MakeBatchNorm;
  table["LRN"] = &MakeLrn;
}

}  // namespace troupe::gpu::cuda
