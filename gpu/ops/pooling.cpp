// Pooling over windows: MaxPool, AveragePool, the global forms, by oneDNN where it has the exact meaning; the
// rest (indices, padding that is counted under ceil_mode, LpPool, other types) by the loops of
// pooling_loops.cpp.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/dnnl_program.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/pooling_loops.hpp"
#include "gpu/ops/window.hpp"

namespace troupe::gpu {
namespace {

using dnnl::memory;

// Types that only comparisons are needed for.
constexpr TypeSet kMaxTypes = kFloatTypes | TypesOf({proto::INT8, proto::UINT8});

bool IsGlobal(const StepContext& ctx) {
  return ctx.step.op().starts_with("Global");
}

PoolKind KindOf(const StepContext& ctx) {
  const std::string& op = ctx.step.op();
  if (op == "MaxPool" || op == "GlobalMaxPool") return PoolKind::kMax;
  return op == "LpPool" || op == "GlobalLpPool" ? PoolKind::kLp : PoolKind::kAverage;
}

absl::StatusOr<Pooling> Read(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kMaxTypes));
  const Shape& x = in[0].shape;
  if (x.size() < 3 || x.size() > 5) {
    return ctx.Error(absl::StrCat("input ", FormatShape(x), " must have 3 to 5 dimensions"));
  }
  Pooling pooling;
  pooling.kind = KindOf(ctx);
  pooling.source = x;
  pooling.count_padding = ctx.Int("count_include_pad", 0) != 0;
  pooling.column_major = ctx.Int("storage_order", 0) != 0;
  pooling.p = ctx.Int("p", 2);
  const std::span spatial = std::span(x).subspan(2);
  Shape kernel(spatial.begin(), spatial.end());
  if (!IsGlobal(ctx)) {
    kernel = ctx.Ints("kernel_shape");
    if (kernel.size() != spatial.size()) {
      return ctx.Error(
          absl::StrCat("kernel_shape ", FormatShape(kernel), " does not fit input ", FormatShape(x)));
    }
  }
  TROUPE_ASSIGN_OR_RETURN(pooling.window, ReadWindow(ctx, spatial, std::move(kernel)));
  pooling.destination = x;
  std::ranges::copy(pooling.window.out, pooling.destination.begin() + 2);
  return pooling;
}

Inferred Infer(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const Pooling pooling, Read(ctx, in));
  TROUPE_ASSIGN_OR_RETURN(ValueInfo out, Value(ctx, in[0].type, pooling.destination));
  std::vector<ValueInfo> outputs = {out};
  if (ctx.step.op() == "MaxPool" && ctx.step.outputs_size() > 1) {
    outputs.push_back(out);
    outputs.back().type = ctx.step.outputs(1).empty() ? proto::DATA_TYPE_UNSPECIFIED : proto::INT64;
  }
  return outputs;
}

bool WantsIndices(Infos out) {
  return out.size() > 1 && !out[1].absent();
}

bool HasPadding(const Window& window) {
  const auto positive = [](std::int64_t padding) { return padding > 0; };
  return std::ranges::any_of(window.begin, positive) || std::ranges::any_of(window.end, positive);
}

// oneDNN divides by the whole window or by what lies inside the input: with ceil_mode and counted padding
// ONNX does neither. Padding as large as the window would leave some windows empty.
bool ExactInDnnl(const Pooling& pooling, Infos out) {
  if (pooling.kind == PoolKind::kLp || WantsIndices(out)) return false;
  const Window& w = pooling.window;
  if (pooling.kind == PoolKind::kAverage && pooling.count_padding && HasPadding(w) && w.ceil) return false;
  const Shape end = ExactEndPadding(w, std::span(pooling.source).subspan(2));
  for (std::size_t i = 0; i < w.kernel.size(); ++i) {
    if (w.dilations[i] != 1 || w.begin[i] >= w.kernel[i] || end[i] >= w.kernel[i]) return false;
  }
  return true;
}

Made MakeProgram(const Pooling& pooling, const ValueInfo& in, const StepContext& ctx) {
  const Window& w = pooling.window;
  auto source = DescOf(in.layout, in.shape);
  if (!source.ok()) return ctx.Error(std::string(source.status().message()));
  const memory::desc any(pooling.destination, memory::data_type::f32, memory::format_tag::any);
  const auto algorithm = pooling.kind == PoolKind::kMax ? dnnl::algorithm::pooling_max
                         : pooling.count_padding        ? dnnl::algorithm::pooling_avg_include_padding
                                                        : dnnl::algorithm::pooling_avg_exclude_padding;
  const Shape end = ExactEndPadding(w, std::span(pooling.source).subspan(2));
  const dnnl::pooling_v2_forward::desc desc(dnnl::prop_kind::forward_inference, algorithm, *source, any,
                                            w.strides, w.kernel, Shape(w.kernel.size(), 0), w.begin, end);
  const dnnl::pooling_v2_forward::primitive_desc made(desc, UserScratchpad(), CpuEngine());
  auto program = std::make_unique<DnnlProgram>();
  const DnnlProgram::Argument arguments[] = {{DNNL_ARG_SRC, *source, DnnlProgram::Input(0)},
                                             {DNNL_ARG_DST, made.dst_desc(), DnnlProgram::Output(0), true}};
  program->Add(dnnl::pooling_v2_forward(made), made, arguments);
  program->SetInputLayout(0, in.layout);
  program->SetOutputLayout(0, LayoutOf(made.dst_desc()));
  return program;
}

Made MakePlain(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Pooling pooling, Read(ctx, in));
  return MakePoolingLoop(in[0].type, pooling);
}

Made Make(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const Pooling pooling, Read(ctx, in));
  if (out[0].elements() == 0) return EmptyKernel();
  if (in[0].type == proto::FP32 && ExactInDnnl(pooling, out)) {
    return GuardDnnl(ctx, [&] { return MakeProgram(pooling, in[0], ctx); });
  }
  const bool native = in[0].type == proto::FP32 || in[0].type == proto::FP64;
  if (native) return MakePlain(ctx, in, out);
  std::vector<proto::DataType> out_types = {proto::FP32};
  if (out.size() > 1) out_types.push_back(out[1].type);
  const proto::DataType in_types[] = {proto::FP32};
  return MakeConverted(&MakePlain, ctx, in, out, in_types, out_types);
}

constexpr Operator kOperators[] = {
    With({.any_layout = true}, {"MaxPool", 1, kNewestOpset, Infer, Make, nullptr, kMaxTypes}),
    With({.any_layout = true}, {"AveragePool", 7, kNewestOpset, Infer, Make, nullptr, kFloatTypes}),
    With({.any_layout = true}, {"GlobalMaxPool", 1, kNewestOpset, Infer, Make, nullptr, kFloatTypes}),
    With({.any_layout = true}, {"GlobalAveragePool", 1, kNewestOpset, Infer, Make, nullptr, kFloatTypes}),
    With({.any_layout = true}, {"LpPool", 2, kNewestOpset, Infer, Make, nullptr, kFloatTypes}),
    With({.any_layout = true}, {"GlobalLpPool", 2, kNewestOpset, Infer, Make, nullptr, kFloatTypes}),
};

}  // namespace

std::span<const Operator> PoolingOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
