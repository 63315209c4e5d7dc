// ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceL1, ReduceL2, ReduceLogSum, ReduceLogSumExp,
// ReduceSumSquare.
#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/reduce_loop.hpp"

namespace troupe::gpu {
namespace {

// The axes, sorted; nullopt when only the run knows them.
absl::StatusOr<std::optional<Shape>> Axes(const StepContext& ctx, Infos in) {
  const std::size_t rank = in[0].shape.size();
  Shape axes = ctx.Ints("axes");
  if (Present(in, 1)) {
    TROUPE_ASSIGN_OR_RETURN(std::optional<Shape> known, KnownInts(ctx, in, 1));
    if (!known) return std::optional<Shape>();
    axes = *std::move(known);
  }
  if (axes.empty()) {
    if (ctx.Int("noop_with_empty_axes", 0) == 0) {
      axes.resize(rank);
      std::iota(axes.begin(), axes.end(), 0);
    }
    return std::optional(std::move(axes));
  }
  TROUPE_ASSIGN_OR_RETURN(axes, NormalizeAxes(ctx, std::move(axes), rank));
  return std::optional(std::move(axes));
}

// From opset 20 on the largest and the smallest of truth values are "any" and "all".
template <TypeSet types>
Inferred InferReduce(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 2, types));
  if (in[0].type == proto::BOOL && ctx.opset < 20) {
    return ctx.Error(absl::StrCat("truth values are reduced from opset 20 on, the model has ", ctx.opset));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::optional<Shape> axes, Axes(ctx, in));
  const bool keep = ctx.Int("keepdims", 1) != 0;
  const Shape& shape = in[0].shape;
  if (!axes) {  // at least one axis goes; the elements get no more
    const auto gone = static_cast<std::size_t>(in[1].elements());
    if (gone > shape.size()) return ctx.Error("more axes than dimensions");
    if (keep) return OneValue(ctx, in[0].type, shape, true);
    Shape bound(shape.size() - gone, 1);
    if (!bound.empty()) bound[0] = in[0].elements();
    return OneValue(ctx, in[0].type, std::move(bound), true);
  }
  Shape out;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool gone = std::binary_search(axes->begin(), axes->end(), static_cast<std::int64_t>(i));
    if (!gone || keep) out.push_back(gone ? 1 : shape[i]);
  }
  return OneValue(ctx, in[0].type, std::move(out));
}

Made MakeReduce(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const std::optional<Shape> axes, Axes(ctx, in));
  if (!axes) return ctx.Error("the axes must be known when the kernel is made");
  const ReduceFunction run = FindReduce(ctx.step.op(), in[0].type);
  if (run == nullptr) return ctx.Error(absl::StrCat("no kernel for ", proto::DataType_Name(in[0].type)));
  const ReduceLoop loop(in[0].shape, *axes);
  const Bytes scratch(loop.inner_reduced ? 0 : static_cast<std::uint64_t>(loop.inner.size) * 16);
  return MakeKernel(
      [run, loop](In in, Out out, std::byte* scratch) {
        run(loop, in[0].data, out[0].data, scratch);
        return absl::OkStatus();
      },
      scratch);
}

// Truth values as numbers.
Made MakeReduceAny(const StepContext& ctx, Infos in, Infos out) {
  if (in[0].type != proto::BOOL) return Widened<&MakeReduce>(ctx, in, out);
  const proto::DataType types[] = {proto::INT32, in.size() > 1 ? in[1].type : proto::DATA_TYPE_UNSPECIFIED};
  return MakeConverted(&MakeReduce, ctx, in, out, types, std::array{proto::INT32});
}

template <TypeSet types = kNumberTypes>
constexpr Operator Entry(std::string_view name) {
  return {.name = name,
          .min_opset = 1,
          .max_opset = kNewestOpset,
          .infer = &InferReduce<types>,
          .make = Has(types, proto::BOOL) ? &MakeReduceAny : &Widened<&MakeReduce>,
          .types = types};
}

constexpr Operator kOperators[] = {
    Entry("ReduceSum"),
    Entry("ReduceMean"),
    Entry<kFixedTypes>("ReduceMax"),
    Entry<kFixedTypes>("ReduceMin"),
    Entry("ReduceProd"),
    Entry("ReduceL1"),
    Entry("ReduceL2"),
    Entry("ReduceLogSum"),
    Entry("ReduceLogSumExp"),
    Entry("ReduceSumSquare"),
};

}  // namespace

std::span<const Operator> ReductionOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
