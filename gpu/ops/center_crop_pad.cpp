// CenterCropPad (opset 18): cuts from both ends of an axis, or adds zeros at both, until it has the length asked for.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/strided_copy.hpp"

namespace troupe::gpu {
namespace {

absl::StatusOr<Shape> CenteredShape(const StepContext& ctx, Infos in) {
  const std::size_t rank = in[0].shape.size();
  TROUPE_ASSIGN_OR_RETURN(const Shape asked, RequireInts(ctx, in, 1, "shape"));
  Shape axes = ctx.Ints("axes");
  if (ctx.Find("axes") == nullptr) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  TROUPE_RETURN_IF_ERROR(NormalizeAxes(ctx, axes, rank).status());
  if (asked.size() != axes.size()) {
    return ctx.Error(
        absl::StrCat("shape ", FormatShape(asked), " has another length than axes ", FormatShape(axes)));
  }
  Shape shape = in[0].shape;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis, NormalizeAxis(ctx, axes[i], rank));
    shape[static_cast<std::size_t>(axis)] = asked[i];
  }
  return shape;
}

Inferred InferCenterCropPad(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kFixedTypes));
  TROUPE_ASSIGN_OR_RETURN(Shape shape, CenteredShape(ctx, in));
  return OneValue(ctx, in[0].type, std::move(shape));
}

Made MakeCenterCropPad(const StepContext&, Infos in, Infos out) {
  const Shape from = RowMajorStrides(in[0].shape);
  const Shape to = RowMajorStrides(out[0].shape);
  Shape box(from.size());
  std::int64_t from_offset = 0;
  std::int64_t to_offset = 0;
  for (std::size_t d = 0; d < box.size(); ++d) {
    const std::int64_t has = in[0].shape[d];
    const std::int64_t wants = out[0].shape[d];
    box[d] = std::min(has, wants);
    // An odd element is cut from, or added at, the end.
    from_offset += std::max<std::int64_t>(has - wants, 0) / 2 * from[d];
    to_offset += std::max<std::int64_t>(wants - has, 0) / 2 * to[d];
  }
  const std::size_t size = ElementSize(in[0].type);
  const StridedCopy copy(box, from, to, size);
  const bool empty = std::ranges::find(box, 0) != box.end();
  return MakeKernel([copy, empty, from = from_offset * static_cast<std::int64_t>(size),
                     to = to_offset * static_cast<std::int64_t>(size)](In in, Out out, std::byte*) {
    std::fill_n(out[0].data, BytesOf(out[0]), std::byte{0});
    if (!empty) copy.Run(in[0].data + from, out[0].data + to);
    return absl::OkStatus();
  });
}

constexpr Operator kOperators[] = {
    {.name = "CenterCropPad",
     .min_opset = 18,
     .max_opset = kNewestOpset,
     .infer = &InferCenterCropPad,
     .make = &MakeCenterCropPad,
     .types = kFixedTypes},
};

}  // namespace

std::span<const Operator> CenterCropPadOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
