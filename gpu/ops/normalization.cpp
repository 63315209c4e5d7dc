// BatchNormalization, LRN, Softmax, LogSoftmax by oneDNN; InstanceNormalization as loops.
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/dnnl_program.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/parallel_ranges.hpp"

namespace troupe::gpu {
namespace {

using dnnl::memory;

constexpr TypeSet kTypes = TypesOf({proto::FP32, proto::FP16, proto::BF16});

template <MakeFunction make>
Made InFloat(const StepContext& ctx, Infos in, Infos out) {
  if (out[0].elements() == 0) return EmptyKernel();
  const auto guarded = [&] { return GuardDnnl(ctx, [&] { return make(ctx, in, out); }); };
  return in[0].type == proto::FP32 ? guarded() : MakeWidened(make, &FloatWideType, ctx, in, out);
}

absl::StatusOr<memory::desc> SourceDesc(const StepContext& ctx, const ValueInfo& info) {
  auto desc = DescOf(info.layout, info.shape);
  if (!desc.ok()) return ctx.Error(std::string(desc.status().message()));
  return *std::move(desc);
}

// A per-channel parameter: [C].
absl::Status CheckParameter(const StepContext& ctx, Infos in, std::size_t index) {
  if (Present(in, index) && in[index].shape == Shape{in[0].shape[1]})
    return CheckType(ctx, in, index, kTypes);
  return ctx.Error(absl::StrCat("input ", index, " must have shape [", in[0].shape[1], "]"));
}

// --- BatchNormalization (inference) ---

Inferred InferBatchNorm(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 5, 5, kTypes));
  if (in[0].shape.size() < 2) return ctx.Error("the input needs a batch and a channel dimension");
  for (std::size_t i = 1; i < 5; ++i) TROUPE_RETURN_IF_ERROR(CheckParameter(ctx, in, i));
  if (ctx.Int("spatial", 1) == 0) return ctx.Error("spatial=0 (statistics per element) is not supported");
  if (ctx.Int("training_mode", 0) != 0) return ctx.Error("training_mode=1 is not supported");
  if (ctx.step.outputs_size() > 1) return ctx.Error("more than one output (training) is not supported");
  return OneValue(ctx, in[0].type, in[0].shape);
}

// oneDNN knows batch norms of 2 to 5 dimensions; further ones are folded into the last.
Shape FoldDims(const Shape& shape) {
  if (shape.size() <= 5) return shape;
  Shape folded(shape.begin(), shape.begin() + 4);
  folded.push_back(Product(std::span(shape).subspan(4)));
  return folded;
}

Made MakeBatchNorm(const StepContext& ctx, Infos in, Infos) {
  ValueInfo folded = in[0];
  folded.shape = FoldDims(in[0].shape);
  TROUPE_ASSIGN_OR_RETURN(const memory::desc source, SourceDesc(ctx, folded));
  dnnl::post_ops activation;
  TROUPE_RETURN_IF_ERROR(AppendActivation(ctx, activation));
  using Flags = dnnl::normalization_flags;
  const auto flags = Flags::use_global_stats | Flags::use_scale | Flags::use_shift;
  const dnnl::batch_normalization_forward::desc desc(dnnl::prop_kind::forward_inference, source,
                                                     ctx.Float("epsilon", 1e-5F), flags);
  const bool relu = ctx.step.activation() == "Relu";
  const dnnl::batch_normalization_forward::primitive_desc made(
      desc, UserScratchpad(relu ? activation : dnnl::post_ops()), CpuEngine());
  auto program = std::make_unique<DnnlProgram>();
  const memory::desc row = RowMajorDesc(Shape{in[0].shape[1]});
  const DnnlProgram::Argument arguments[] = {
      {DNNL_ARG_SRC, source, DnnlProgram::Input(0)},   {DNNL_ARG_SCALE, row, DnnlProgram::Input(1)},
      {DNNL_ARG_SHIFT, row, DnnlProgram::Input(2)},    {DNNL_ARG_MEAN, row, DnnlProgram::Input(3)},
      {DNNL_ARG_VARIANCE, row, DnnlProgram::Input(4)}, {DNNL_ARG_DST, source, DnnlProgram::Output(0), true}};
  program->Add(dnnl::batch_normalization_forward(made), made, arguments);
  if (!relu && activation.len() > 0) AddActivation(*program, source, activation);
  program->SetInputLayout(0, in[0].layout);
  program->SetOutputLayout(0, in[0].layout);
  program->SetInPlace(0);
  return program;
}

// --- LRN ---

Inferred InferLrn(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kTypes));
  if (in[0].shape.size() < 3 || in[0].shape.size() > 5)
    return ctx.Error("the input must have 3 to 5 dimensions");
  const std::int64_t size = ctx.Int("size", 0);
  if (size < 1 || size > (1 << 20)) return ctx.Error(absl::StrCat("size ", size, " is outside [1,2^20]"));
  return OneValue(ctx, in[0].type, in[0].shape);
}

// The definition, for windows that oneDNN does not have (an even size is not symmetric).
Made MakeLrnLoop(const StepContext& ctx, const Shape& shape) {
  const std::int64_t size = ctx.Int("size", 1);
  const float alpha = ctx.Float("alpha", 1e-4F) / static_cast<float>(size);
  const float beta = ctx.Float("beta", 0.75F);
  const float bias = ctx.Float("bias", 1);
  return MakeKernel([=](In in, Out out, std::byte*) {
    const float* x = Data<float>(in[0]);
    float* y = MutableData<float>(out[0]);
    const std::int64_t channels = shape[1];
    const std::int64_t plane = Product(std::span(shape).subspan(2));
    ParallelRanges(shape[0] * channels, plane * size, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        const std::int64_t c = row % channels;
        const std::int64_t low = std::max<std::int64_t>(0, c - (size - 1) / 2);
        const std::int64_t high = std::min(channels - 1, c + size / 2);
        for (std::int64_t i = 0; i < plane; ++i) {
          float sum = 0;
          for (std::int64_t k = low; k <= high; ++k) {
            const float value = x[(row - c + k) * plane + i];
            sum += value * value;
          }
          y[row * plane + i] = x[row * plane + i] / std::pow(bias + alpha * sum, beta);
        }
      }
    });
    return absl::OkStatus();
  });
}

Made MakeLrn(const StepContext& ctx, Infos in, Infos) {
  const std::int64_t size = ctx.Int("size", 1);
  if (size % 2 == 0) return MakeLrnLoop(ctx, in[0].shape);
  TROUPE_ASSIGN_OR_RETURN(const memory::desc source, SourceDesc(ctx, in[0]));
  const dnnl::lrn_forward::desc desc(dnnl::prop_kind::forward_inference, dnnl::algorithm::lrn_across_channels,
                                     source, size, ctx.Float("alpha", 1e-4F), ctx.Float("beta", 0.75F),
                                     ctx.Float("bias", 1));
  const dnnl::lrn_forward::primitive_desc made(desc, UserScratchpad(), CpuEngine());
  auto program = std::make_unique<DnnlProgram>();
  const DnnlProgram::Argument arguments[] = {{DNNL_ARG_SRC, source, DnnlProgram::Input(0)},
                                             {DNNL_ARG_DST, made.dst_desc(), DnnlProgram::Output(0), true}};
  program->Add(dnnl::lrn_forward(made), made, arguments);
  program->SetInputLayout(0, in[0].layout);
  program->SetOutputLayout(0, LayoutOf(made.dst_desc()));
  return program;
}

// --- Softmax, LogSoftmax ---

Inferred InferSoftmax(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kTypes));
  TROUPE_RETURN_IF_ERROR(NormalizeAxis(ctx, ctx.Int("axis", ctx.opset < 13 ? 1 : -1),
                                       std::max<std::size_t>(in[0].shape.size(), 1))
                             .status());
  return OneValue(ctx, in[0].type, in[0].shape);
}

// [outer, axis, inner]; before opset 13 everything from the axis on is one.
Shape SoftmaxDims(const StepContext& ctx, const Shape& shape, std::size_t axis) {
  const std::span all(shape);
  if (ctx.opset < 13) return {Product(all.first(axis)), Product(all.subspan(axis)), 1};
  return {Product(all.first(axis)), all.empty() ? 1 : all[axis],
          all.empty() ? 1 : Product(all.subspan(axis + 1))};
}

Made MakeSoftmax(const StepContext& ctx, Infos in, Infos) {
  const std::size_t rank = std::max<std::size_t>(in[0].shape.size(), 1);
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", ctx.opset < 13 ? 1 : -1), rank));
  Shape dims = SoftmaxDims(ctx, in[0].shape, static_cast<std::size_t>(axis));
  if (dims[2] == 1) dims.pop_back();
  const memory::desc data = RowMajorDesc(dims);
  const auto algorithm =
      ctx.step.op() == "LogSoftmax" ? dnnl::algorithm::softmax_log : dnnl::algorithm::softmax_accurate;
  const dnnl::softmax_v2_forward::desc desc(dnnl::prop_kind::forward_inference, algorithm, data, data, 1);
  const dnnl::softmax_v2_forward::primitive_desc made(desc, UserScratchpad(), CpuEngine());
  auto program = std::make_unique<DnnlProgram>();
  const DnnlProgram::Argument arguments[] = {{DNNL_ARG_SRC, data, DnnlProgram::Input(0)},
                                             {DNNL_ARG_DST, data, DnnlProgram::Output(0), true}};
  program->Add(dnnl::softmax_v2_forward(made), made, arguments);
  program->SetInPlace(0);
  return program;
}

// --- InstanceNormalization ---

Inferred InferInstanceNorm(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 3, 3, kTypes));
  if (in[0].shape.size() < 3) return ctx.Error("the input needs a batch, a channel and a spatial dimension");
  for (std::size_t i = 1; i < 3; ++i) TROUPE_RETURN_IF_ERROR(CheckParameter(ctx, in, i));
  return OneValue(ctx, in[0].type, in[0].shape);
}

void NormalizePlane(const float* x, float* y, std::int64_t n, float scale, float shift, float epsilon) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(n);
  double squares = 0;
  for (std::int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double factor = scale / std::sqrt(squares / static_cast<double>(n) + epsilon);
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>((x[i] - mean) * factor + shift);
}

Made MakeInstanceNorm(const StepContext& ctx, Infos in, Infos) {
  const float epsilon = ctx.Float("epsilon", 1e-5F);
  const Shape shape = in[0].shape;
  return MakeKernel(
      [shape, epsilon](In in, Out out, std::byte*) {
        const std::int64_t plane = Product(std::span(shape).subspan(2));
        ParallelRanges(shape[0] * shape[1], plane * 3, [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t row = first; row < last; ++row) {
            const std::int64_t c = row % shape[1];
            NormalizePlane(Data<float>(in[0]) + row * plane, MutableData<float>(out[0]) + row * plane, plane,
                           Data<float>(in[1])[c], Data<float>(in[2])[c], epsilon);
          }
        });
        return absl::OkStatus();
      },
      Bytes(0), 0);
}

constexpr Operator kOperators[] = {
    With({.any_layout = true, .activation = true},
         {"BatchNormalization", 7, kNewestOpset, InferBatchNorm, InFloat<MakeBatchNorm>, nullptr, kTypes}),
    With({.any_layout = true}, {"LRN", 1, kNewestOpset, InferLrn, InFloat<MakeLrn>, nullptr, kTypes}),
    {"Softmax", 1, kNewestOpset, InferSoftmax, InFloat<MakeSoftmax>, nullptr, kTypes},
    {"LogSoftmax", 1, kNewestOpset, InferSoftmax, InFloat<MakeSoftmax>, nullptr, kTypes},
    {"InstanceNormalization", 6, kNewestOpset, InferInstanceNorm, InFloat<MakeInstanceNorm>, nullptr, kTypes},
};

}  // namespace

std::span<const Operator> NormalizationOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
