// com.microsoft.QLinearAveragePool and QLinearGlobalAveragePool: AveragePool's kernel on the real values of a quantised
// tensor, whose channels may come last.
#include "absl/strings/str_cat.h"
#include "gpu/ops/families.hpp"
#include "gpu/ops/inner_kernel.hpp"
#include "gpu/ops/quantized.hpp"

namespace troupe::gpu {
namespace {

bool IsGlobal(const StepContext& ctx) {
  return ctx.step.op() == "com.microsoft.QLinearGlobalAveragePool";
}

// The channels as the second dimension, or as the last.
Shape ChannelsSecond(Shape shape) {
  shape.insert(shape.begin() + 1, shape.back());
  shape.pop_back();
  return shape;
}
Shape ChannelsLast(Shape shape) {
  shape.push_back(shape[1]);
  shape.erase(shape.begin() + 1);
  return shape;
}

struct BytePool {
  bool last = false;  // channels
  Shape from, to;     // with the channels second
};

absl::Status CheckPoolInputs(const StepContext& ctx, Infos in) {
  if (IsGlobal(ctx)) {
    TROUPE_RETURN_IF_ERROR(CheckAttributes(ctx, {"channels_last"}));
  } else {
    TROUPE_RETURN_IF_ERROR(CheckAttributes(ctx, {"auto_pad", "ceil_mode", "channels_last",
                                                 "count_include_pad", "kernel_shape", "pads", "strides"}));
  }
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 5, kByteTypes));
  for (std::size_t scale : {1, 3}) TROUPE_RETURN_IF_ERROR(CheckTensorScale(ctx, in, scale, in[0].type));
  if (in[0].shape.size() < 3 || in[0].shape.size() > 5)
    return ctx.Error(absl::StrCat("input ", FormatShape(in[0].shape), " must have 3 to 5 dimensions"));
  return absl::OkStatus();
}

InnerStep InnerPool(const StepContext& ctx) {
  InnerStep step(ctx, IsGlobal(ctx) ? "GlobalAveragePool" : "AveragePool", ctx.opset);
  for (const proto::Attribute& attribute : ctx.step.attributes())
    if (attribute.name() != "channels_last") step.Copy(attribute);
  return step;
}

absl::StatusOr<BytePool> ReadBytePool(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckPoolInputs(ctx, in));
  BytePool pool;
  pool.last = ctx.Int("channels_last", 0) != 0;
  pool.from = pool.last ? ChannelsSecond(in[0].shape) : in[0].shape;
  const ValueInfo plain = FloatInfo(pool.from);
  TROUPE_ASSIGN_OR_RETURN(const std::vector<ValueInfo> out, InnerPool(ctx).Infer(std::span(&plain, 1)));
  pool.to = out[0].shape;
  return pool;
}

Inferred InferBytePool(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const BytePool pool, ReadBytePool(ctx, in));
  return OneValue(ctx, in[0].type, pool.last ? ChannelsLast(pool.to) : pool.to);
}

// f(element with the channels second, element as it lies) for each element of `shape`, which has the channels second.
template <class F>
void ForEachPlace(const Shape& shape, bool last, F&& f) {
  const std::int64_t area = Product(std::span(shape).subspan(2));
  for (std::int64_t i = 0; i < Product(shape); ++i) {
    const std::int64_t channel = i / area % shape[1];
    const std::int64_t image = i / area / shape[1];
    f(i, last ? (image * area + i % area) * shape[1] + channel : i);
  }
}

std::int64_t ZeroOf(In in, std::size_t scale) {
  return Present(in, scale + 1) ? SmallIntAt(in[scale + 1], 0) : 0;
}

Made MakeBytePool(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const BytePool pool, ReadBytePool(ctx, in));
  if (out[0].elements() == 0) return MakeKernel([](In, Out, std::byte*) { return absl::OkStatus(); });
  const ValueInfo plain = FloatInfo(pool.from);
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> made, InnerPool(ctx).Make(std::span(&plain, 1)));
  ScratchParts parts;
  const std::uint64_t real = parts.AddFloats(Product(pool.from));
  const std::uint64_t pooled = parts.AddFloats(Product(pool.to));
  const std::uint64_t inner = parts.Add(made->scratch().count());
  return MakeKernel(
      [pool, real, pooled, inner, kernel = std::shared_ptr<const Kernel>(std::move(made))](
          In in, Out out, std::byte* scratch) {
        const TensorView from = FloatView(pool.from, scratch + real);
        TensorView to = FloatView(pool.to, scratch + pooled);
        const std::int64_t zero = ZeroOf(in, 1);
        ForEachPlace(pool.from, pool.last, [&](std::int64_t i, std::int64_t place) {
          MutableData<float>(from)[i] =
              static_cast<float>(SmallIntAt(in[0], place) - zero) * *Data<float>(in[1]);
        });
        TROUPE_RETURN_IF_ERROR(kernel->Run(std::span(&from, 1), std::span(&to, 1), scratch + inner));
        ForEachPlace(pool.to, pool.last, [&](std::int64_t i, std::int64_t place) {
          QuantizeTo(out[0].type, out[0].data, place,
                     static_cast<double>(Data<float>(to)[i] / *Data<float>(in[3])), ZeroOf(in, 3));
        });
        return absl::OkStatus();
      },
      parts.size());
}

constexpr Operator kOperators[] = {
    {.name = "com.microsoft.QLinearAveragePool",
     .min_opset = 7,
     .max_opset = kNewestOpset,
     .infer = &InferBytePool,
     .make = &MakeBytePool,
     .types = kByteTypes},
    {.name = "com.microsoft.QLinearGlobalAveragePool",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferBytePool,
     .make = &MakeBytePool,
     .types = kByteTypes},
};

}  // namespace

std::span<const Operator> BytePoolOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
