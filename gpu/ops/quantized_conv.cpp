// ConvInteger and QLinearConv: convolutions of bytes, summed in 32 bits.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/ops/families.hpp"
#include "gpu/ops/quantized.hpp"
#include "gpu/ops/window.hpp"

namespace troupe::gpu {
namespace {

struct IntegerConvolution {
  std::int64_t batch, channels, out_channels, groups;
  Shape spatial;
  Window window;
  Shape out;
};

absl::StatusOr<IntegerConvolution> ReadConvolution(const StepContext& ctx, const Shape& x, const Shape& w) {
  IntegerConvolution conv;
  conv.groups = ctx.Int("group", 1);
  if (x.size() < 3 || x.size() > 5 || w.size() != x.size() || conv.groups < 1 || w[0] % conv.groups != 0 ||
      x[1] % conv.groups != 0 || w[1] != x[1] / conv.groups) {
    return ctx.Error(absl::StrCat("weights ", FormatShape(w), " with group ", conv.groups,
                                  " do not fit input ", FormatShape(x)));
  }
  conv.batch = x[0];
  conv.channels = x[1];
  conv.out_channels = w[0];
  conv.spatial.assign(x.begin() + 2, x.end());
  const Shape kernel(w.begin() + 2, w.end());
  const Shape asked = ctx.Ints("kernel_shape");
  if (!asked.empty() && asked != kernel) return ctx.Error("kernel_shape differs from the weights");
  TROUPE_ASSIGN_OR_RETURN(conv.window, ReadWindow(ctx, conv.spatial, kernel));
  conv.out = {x[0], w[0]};
  conv.out.insert(conv.out.end(), conv.window.out.begin(), conv.window.out.end());
  return conv;
}

// The sum at one place of the output. Padding holds the input's zero point, which is to say: nothing.
std::int32_t SumAt(const IntegerConvolution& conv, const TensorView& x, std::int64_t zero_x,
                   const TensorView& w, std::int64_t zero_w, std::int64_t n, std::int64_t m,
                   const Shape& place) {
  const std::int64_t group_channels = conv.channels / conv.groups;
  const std::int64_t first_channel = m / (conv.out_channels / conv.groups) * group_channels;
  const std::int64_t plane = Product(conv.spatial);
  const std::int64_t taps = Product(conv.window.kernel);
  std::uint32_t sum = 0;
  for (std::int64_t t = 0; t < taps; ++t) {
    std::int64_t rest = t;
    std::int64_t offset = 0;
    std::int64_t stride = 1;
    bool inside = true;
    for (std::size_t d = place.size(); d-- > 0;) {
      const std::int64_t k = rest % conv.window.kernel[d];
      rest /= conv.window.kernel[d];
      const std::int64_t at =
          place[d] * conv.window.strides[d] - conv.window.begin[d] + k * conv.window.dilations[d];
      inside = inside && at >= 0 && at < conv.spatial[d];
      offset += at * stride;
      stride *= conv.spatial[d];
    }
    if (!inside) continue;
    for (std::int64_t c = 0; c < group_channels; ++c) {
      const auto a = static_cast<std::int32_t>(
          SmallIntAt(x, (n * conv.channels + first_channel + c) * plane + offset) - zero_x);
      const auto b = static_cast<std::int32_t>(SmallIntAt(w, (m * group_channels + c) * taps + t) - zero_w);
      sum += static_cast<std::uint32_t>(a * b);
    }
  }
  return static_cast<std::int32_t>(sum);
}

// f(output element, output channel, sum). Zero points of the weights: one, or one for each output channel.
template <class F>
void ConvolveAll(const IntegerConvolution& conv, const TensorView& x, std::int64_t zero_x,
                 const TensorView& w, const TensorView* zero_w, F&& f) {
  const Shape& out = conv.window.out;
  const std::int64_t places = Product(out);
  const bool per_channel = zero_w != nullptr && Elements(*zero_w) > 1;
  std::int64_t element = 0;
  Shape place(out.size());
  for (std::int64_t n = 0; n < conv.batch; ++n) {
    for (std::int64_t m = 0; m < conv.out_channels; ++m) {
      const std::int64_t zero = zero_w == nullptr ? 0 : SmallIntAt(*zero_w, per_channel ? m : 0);
      for (std::int64_t p = 0; p < places; ++p) {
        std::int64_t rest = p;
        for (std::size_t d = out.size(); d-- > 0;) {
          place[d] = rest % out[d];
          rest /= out[d];
        }
        f(element++, m, SumAt(conv, x, zero_x, w, zero, n, m, place));
      }
    }
  }
}

absl::Status CheckChannels(const StepContext& ctx, Infos in, std::size_t index, std::int64_t channels) {
  if (!Present(in, index) || in[index].elements() == 1 || in[index].shape == Shape{channels})
    return absl::OkStatus();
  return ctx.Error(
      absl::StrCat("input ", index, " wants one element or one for each of ", channels, " channels"));
}

// --- ConvInteger
// --------------------------------------------------------------------------------------------------

Inferred InferConvInteger(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 4, kByteTypes));
  for (std::size_t i = 1; i < in.size(); ++i) TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, i, kByteTypes));
  TROUPE_ASSIGN_OR_RETURN(IntegerConvolution conv, ReadConvolution(ctx, in[0].shape, in[1].shape));
  TROUPE_RETURN_IF_ERROR(CheckChannels(ctx, in, 3, conv.out_channels));
  if (Present(in, 2) && in[2].elements() != 1) return ctx.Error("the input's zero point must be one number");
  return OneValue(ctx, proto::INT32, std::move(conv.out));
}

Made MakeConvInteger(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(IntegerConvolution conv, ReadConvolution(ctx, in[0].shape, in[1].shape));
  return MakeKernel([conv = std::move(conv)](In in, Out out, std::byte*) {
    ConvolveAll(
        conv, in[0], Present(in, 2) ? SmallIntAt(in[2], 0) : 0, in[1], Present(in, 3) ? &in[3] : nullptr,
        [&](std::int64_t i, std::int64_t, std::int32_t sum) { MutableData<std::int32_t>(out[0])[i] = sum; });
    return absl::OkStatus();
  });
}

// --- QLinearConv: x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias
// -----------------------------------------

Inferred InferQLinearConv(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 8, 9, kByteTypes));
  for (std::size_t i : {2, 3, 5, 7}) TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, i, kByteTypes));
  for (std::size_t i : {1, 4, 6}) TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, i, TypesOf({proto::FP32})));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 8, TypesOf({proto::INT32})));
  TROUPE_ASSIGN_OR_RETURN(IntegerConvolution conv, ReadConvolution(ctx, in[0].shape, in[3].shape));
  for (std::size_t i : {4, 5}) TROUPE_RETURN_IF_ERROR(CheckChannels(ctx, in, i, conv.out_channels));
  for (std::size_t i : {1, 2, 6, 7}) {
    if (in[i].elements() != 1) return ctx.Error(absl::StrCat("input ", i, " must be one number"));
  }
  if (Present(in, 8) && in[8].shape != Shape{conv.out_channels}) return ctx.Error("the bias does not fit");
  return OneValue(ctx, in[7].type, std::move(conv.out));
}

Made MakeQLinearConv(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(IntegerConvolution conv, ReadConvolution(ctx, in[0].shape, in[3].shape));
  return MakeKernel([conv = std::move(conv)](In in, Out out, std::byte*) {
    const float* scale_w = Data<float>(in[4]);
    const bool per_channel = Elements(in[4]) > 1;
    const double scale = static_cast<double>(*Data<float>(in[1])) / *Data<float>(in[6]);
    const std::int64_t zero_y = SmallIntAt(in[7], 0);
    ConvolveAll(conv, in[0], SmallIntAt(in[2], 0), in[3], &in[5],
                [&](std::int64_t i, std::int64_t m, std::int32_t sum) {
                  const std::int64_t biased =
                      sum + (Present(in, 8) ? std::int64_t{Data<std::int32_t>(in[8])[m]} : 0);
                  QuantizeTo(out[0].type, out[0].data, i,
                             static_cast<double>(biased) * scale * scale_w[per_channel ? m : 0], zero_y);
                });
    return absl::OkStatus();
  });
}

constexpr Operator kOperators[] = {
    {.name = "ConvInteger",
     .min_opset = 10,
     .max_opset = kNewestOpset,
     .infer = &InferConvInteger,
     .make = &MakeConvInteger,
     .types = kByteTypes},
    {.name = "QLinearConv",
     .min_opset = 10,
     .max_opset = kNewestOpset,
     .infer = &InferQLinearConv,
     .make = &MakeQLinearConv,
     .types = kByteTypes},
};

}  // namespace

std::span<const Operator> QuantizedConvolutionOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
