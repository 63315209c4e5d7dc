// Steps on quantised tensors, by kernels of our own: real = (stored - zero point) * scale.
#include <algorithm>

#include "gpu/cuda/gpu_kernel.hpp"
#include "gpu/cuda/ops/boxes.hpp"
#include "gpu/ops/quantized.hpp"

namespace troupe::gpu::cuda {
namespace {

Made MakeQuantize(const GpuStep& step) {
  QuantizeArguments arguments;
  arguments.from = ElementOf(step.in[0].type);
  arguments.to = ElementOf(step.out[0].type);
  TROUPE_ASSIGN_OR_RETURN(const QuantizedAxis axis, ReadQuantizedAxis(step.ctx, step.in, 1));
  arguments.channels = axis.channels;
  arguments.inner = axis.inner;
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    QuantizeArguments now = arguments;
    now.count = Elements(out[0]);
    now.in = in[0].data;
    now.out = out[0].data;
    now.scale = Data<float>(in[1]);
    now.zero = Present(in, 2) ? in[2].data : nullptr;
    return launch.Put(now);
  });
}

Made MakeDequantize(const GpuStep& step) {
  DequantizeArguments arguments;
  arguments.from = ElementOf(step.in[0].type);
  TROUPE_ASSIGN_OR_RETURN(const QuantizedAxis axis, ReadQuantizedAxis(step.ctx, step.in, 1));
  arguments.channels = axis.channels;
  arguments.inner = axis.inner;
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    DequantizeArguments now = arguments;
    now.count = Elements(out[0]);
    now.in = in[0].data;
    now.out = MutableData<float>(out[0]);
    now.scale = Data<float>(in[1]);
    now.zero = Present(in, 2) ? in[2].data : nullptr;
    return launch.Put(now);
  });
}

// The range first, into scratch when it is not an output.
Made MakeDynamicQuantize(const GpuStep&) {
  constexpr std::uint64_t kEach = 64;
  return MakeGpu(
      [](const KernelLaunch& launch, In in, Out out, std::byte* scratch) -> absl::Status {
        const auto place = [&](std::size_t i) {
          return out.size() > i && out[i].data != nullptr ? out[i].data : scratch + (i - 1) * kEach;
        };
        RangeArguments range;
        range.n = Elements(in[0]);
        range.in = Data<float>(in[0]);
        range.scale = reinterpret_cast<float*>(place(1));
        range.zero = reinterpret_cast<std::uint8_t*>(place(2));
        TROUPE_RETURN_IF_ERROR(launch.Put(range));
        if (out[0].data == nullptr) return absl::OkStatus();
        QuantizeArguments quantize;
        quantize.count = range.n;
        quantize.from = Element::kFp32;
        quantize.to = Element::kUint8;
        quantize.in = in[0].data;
        quantize.out = out[0].data;
        quantize.scale = range.scale;
        quantize.zero = range.zero;
        quantize.inner = std::max<std::int64_t>(range.n, 1);
        return launch.Put(quantize);
      },
      -1, -1, Bytes(kEach * 2));
}

Made MakeIntegerProduct(const GpuStep& step) {
  const Shape& a = step.in[0].shape;
  const Shape& b = step.in[1].shape;
  IntegerProductArguments arguments;
  arguments.type_a = ElementOf(step.in[0].type);
  arguments.type_b = ElementOf(step.in[1].type);
  arguments.m = a[a.size() - 2];
  arguments.k = a.back();
  arguments.n = b.back();
  // A zero point is one number, or one for each row of A, or for each column of B.
  for (const std::size_t zero : {2, 3}) {
    if (!Present(step.in, zero) || step.in[zero].elements() == 1) continue;
    (zero == 2 ? arguments.zero_per_row : arguments.zero_per_column) = true;
  }
  const Shape& out = step.out[0].shape;
  const Shape batch(out.begin(), out.end() - 2);
  arguments.batch = BoxOf(batch);
  arguments.in_a = BroadcastStrides(Shape(a.begin(), a.end() - 2), batch);
  arguments.in_b = BroadcastStrides(Shape(b.begin(), b.end() - 2), batch);
  Simplify(arguments.batch, {&arguments.in_a, &arguments.in_b});
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    IntegerProductArguments now = arguments;
    now.count = Elements(out[0]);
    now.a = in[0].data;
    now.b = in[1].data;
    now.zero_a = Present(in, 2) ? in[2].data : nullptr;
    now.zero_b = Present(in, 3) ? in[3].data : nullptr;
    now.out = MutableData<std::int32_t>(out[0]);
    return launch.Put(now);
  });
}

}  // namespace

void AddQuantizedKernels(KernelTable& table) {
  table["QuantizeLinear"] = &MakeQuantize;
  table["DequantizeLinear"] = &MakeDequantize;
  table["DynamicQuantizeLinear"] = &MakeDynamicQuantize;
  table["MatMulInteger"] = &MakeIntegerProduct;
}

}  // namespace troupe::gpu::cuda
