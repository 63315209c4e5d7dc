// Transpose, Slice, Pad.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/strided_copy.hpp"
#include "gpu/ops/table_limits.hpp"

namespace troupe::gpu {
namespace {

// --- Transpose
// ----------------------------------------------------------------------------------------------------

absl::StatusOr<Shape> Permutation(const StepContext& ctx, std::size_t rank) {
  Shape perm = ctx.Ints("perm");
  if (perm.empty()) {
    perm.resize(rank);
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  Shape sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (perm.size() != rank || sorted[i] != static_cast<std::int64_t>(i)) {
      return ctx.Error(absl::StrCat("perm ", FormatShape(perm), " does not permute ", rank, " dimensions"));
    }
  }
  if (perm.size() != rank) return ctx.Error("perm does not match the input's rank");
  return perm;
}

Inferred InferTranspose(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kAnyTypes));
  TROUPE_ASSIGN_OR_RETURN(const Shape perm, Permutation(ctx, in[0].shape.size()));
  Shape shape;
  for (std::int64_t axis : perm) shape.push_back(in[0].shape[axis]);
  return OneValue(ctx, in[0].type, std::move(shape));
}

Made MakeTranspose(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const Shape perm, Permutation(ctx, in[0].shape.size()));
  const Shape own = RowMajorStrides(in[0].shape);
  Shape from;
  for (std::int64_t axis : perm) from.push_back(own[axis]);
  const StridedCopy copy(out[0].shape, from, RowMajorStrides(out[0].shape), CellSize(in[0].type));
  return MakeKernel([copy](In in, Out out, std::byte*) {
    copy.Run(in[0].data, out[0].data);
    return absl::OkStatus();
  });
}

// --- Slice: bounds as attributes (to opset 9) or as inputs
// --------------------------------------------------------------

struct SliceBounds {
  bool known = true;
  Shape starts, ends, axes, steps;
};

absl::StatusOr<SliceBounds> ReadBounds(const StepContext& ctx, Infos in) {
  SliceBounds bounds;
  if (ctx.opset < 10) {
    bounds.starts = ctx.Ints("starts");
    bounds.ends = ctx.Ints("ends");
    bounds.axes = ctx.Ints("axes");
  } else {
    Shape* const lists[] = {&bounds.starts, &bounds.ends, &bounds.axes, &bounds.steps};
    for (std::size_t i = 1; i <= 4; ++i) {
      if (!Present(in, i)) continue;
      TROUPE_ASSIGN_OR_RETURN(std::optional<Shape> list, KnownInts(ctx, in, i));
      if (!list) {
        bounds.known = false;
      } else {
        *lists[i - 1] = *std::move(list);
      }
    }
  }
  if (!bounds.known) return bounds;
  if (bounds.axes.empty()) {
    bounds.axes.resize(bounds.starts.size());
    std::iota(bounds.axes.begin(), bounds.axes.end(), 0);
  }
  if (bounds.steps.empty()) bounds.steps.assign(bounds.starts.size(), 1);
  const std::size_t n = bounds.starts.size();
  if (bounds.ends.size() != n || bounds.axes.size() != n || bounds.steps.size() != n) {
    return ctx.Error("starts, ends, axes and steps differ in length");
  }
  return bounds;
}

// The first element, the step and the count of every dimension.
struct Window {
  Shape first, step, count;
};

absl::StatusOr<Window> ResolveSlice(const StepContext& ctx, const Shape& shape, const SliceBounds& bounds) {
  Window window{Shape(shape.size(), 0), Shape(shape.size(), 1), shape};
  TROUPE_RETURN_IF_ERROR(NormalizeAxes(ctx, bounds.axes, shape.size()).status());
  for (std::size_t i = 0; i < bounds.axes.size(); ++i) {
    TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis, NormalizeAxis(ctx, bounds.axes[i], shape.size()));
    const std::int64_t dim = shape[axis];
    // The most negative step has no absolute value; any step beyond the dimension takes one element.
    const std::int64_t step = std::clamp<std::int64_t>(bounds.steps[i], -(dim + 1), dim + 1);
    if (step == 0) return ctx.Error("a step is 0");
    const auto clamp = [dim, step](std::int64_t at) {
      if (at < 0) at += dim;
      return step > 0 ? std::clamp<std::int64_t>(at, 0, dim) : std::clamp<std::int64_t>(at, -1, dim - 1);
    };
    const std::int64_t first = clamp(bounds.starts[i]);
    // -1 as an end counts from the end, so 'to the very beginning' is anything that is below after adding
    // dim.
    const std::int64_t last = clamp(bounds.ends[i]);
    window.first[axis] = first;
    window.step[axis] = step;
    const std::int64_t span = step > 0 ? last - first : first - last;
    window.count[axis] = span <= 0 ? 0 : (span + std::abs(step) - 1) / std::abs(step);
  }
  return window;
}

Inferred InferSlice(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, ctx.opset < 10 ? 1 : 3, 5, kAnyTypes));
  TROUPE_ASSIGN_OR_RETURN(const SliceBounds bounds, ReadBounds(ctx, in));
  if (!bounds.known) return OneValue(ctx, in[0].type, in[0].shape, true);
  TROUPE_ASSIGN_OR_RETURN(Window window, ResolveSlice(ctx, in[0].shape, bounds));
  return OneValue(ctx, in[0].type, std::move(window.count));
}

Made MakeSlice(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const SliceBounds bounds, ReadBounds(ctx, in));
  if (!bounds.known) return ctx.Error("the bounds must be known when the kernel is made");
  TROUPE_ASSIGN_OR_RETURN(const Window window, ResolveSlice(ctx, in[0].shape, bounds));
  Shape from = RowMajorStrides(in[0].shape);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    offset += window.first[i] * from[i];
    from[i] *= window.step[i];
  }
  const std::size_t size = CellSize(in[0].type);
  const StridedCopy copy(out[0].shape, from, RowMajorStrides(out[0].shape), size);
  const bool empty = out[0].elements() == 0;
  return MakeKernel(
      [copy, empty, offset = offset * static_cast<std::int64_t>(size)](In in, Out out, std::byte*) {
        if (!empty) copy.Run(in[0].data + offset, out[0].data);
        return absl::OkStatus();
      });
}

// --- Pad: widths as an attribute (to opset 10) or an input, of all axes or of those that input 3 names (from 18
// on); a negative width crops

absl::StatusOr<Shape> PadWidths(const StepContext& ctx, Infos in) {
  Shape pads = ctx.Ints("pads");
  if (ctx.opset >= 11) {
    if (!Present(in, 1)) return ctx.Error("pads (input 1) is required");
    TROUPE_ASSIGN_OR_RETURN(pads, RequireInts(ctx, in, 1, "pads"));
  }
  const std::size_t rank = in[0].shape.size();
  Shape axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (ctx.opset >= 18 && Present(in, 3)) {
    TROUPE_ASSIGN_OR_RETURN(axes, RequireInts(ctx, in, 3, "axes"));
    TROUPE_RETURN_IF_ERROR(NormalizeAxes(ctx, axes, rank).status());
  }
  if (pads.size() != 2 * axes.size()) return ctx.Error("wants two widths for each dimension");
  Shape all(2 * rank, 0);
  for (std::size_t i = 0; i < pads.size(); ++i) {
    if (pads[i] > (std::int64_t{1} << 40) || pads[i] < -(std::int64_t{1} << 40))
      return ctx.Error("a width is absurd");
    TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis, NormalizeAxis(ctx, axes[i % axes.size()], rank));
    all[static_cast<std::size_t>(axis) + (i < axes.size() ? 0 : rank)] = pads[i];
  }
  return all;
}

Inferred InferPad(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, ctx.opset < 18 ? 3 : 4, kFixedTypes));
  TROUPE_ASSIGN_OR_RETURN(const Shape pads, PadWidths(ctx, in));
  if (Present(in, 2) && (in[2].type != in[0].type || in[2].elements() != 1)) {
    return ctx.Error("the constant must be one element of the input's type");
  }
  const std::string mode = ctx.Text("mode", "constant");
  const bool wraps = mode == "wrap" && ctx.opset >= 19;
  if (mode != "constant" && mode != "reflect" && mode != "edge" && !wraps) {
    return ctx.Error(absl::StrCat("unknown mode '", mode, "'"));
  }
  Shape shape = in[0].shape;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::int64_t dim = shape[i];
    shape[i] += pads[i] + pads[shape.size() + i];
    if (shape[i] < 0) return ctx.Error("crops more than there is");
    if (mode == "constant") continue;
    if (dim == 0 && shape[i] != 0) return ctx.Error("nothing to copy into the padding");
    if (shape[i] > kMaxTabulated) return ctx.Error("a padded dimension is longer than 2^24");
  }
  return OneValue(ctx, in[0].type, std::move(shape));
}

// The box that both tensors share: what of the input survives, and where it goes.
Made MakeConstantPad(const StepContext& ctx, Infos in, Infos out, const Shape& pads) {
  const Shape from = RowMajorStrides(in[0].shape);
  const Shape to = RowMajorStrides(out[0].shape);
  const std::size_t rank = from.size();
  Shape box(rank);
  std::int64_t from_offset = 0;
  std::int64_t to_offset = 0;
  bool empty = false;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t crop_front = std::max<std::int64_t>(-pads[i], 0);
    const std::int64_t crop_back = std::max<std::int64_t>(-pads[rank + i], 0);
    box[i] = std::max<std::int64_t>(in[0].shape[i] - crop_front - crop_back, 0);
    empty = empty || box[i] == 0;
    from_offset += crop_front * from[i];
    to_offset += std::max<std::int64_t>(pads[i], 0) * to[i];
  }
  const std::size_t size = CellSize(in[0].type);
  std::array<std::byte, 8> fallback{};
  const float attribute = ctx.Float("value", 0.0F);
  ConvertElements(proto::FP32, reinterpret_cast<const std::byte*>(&attribute), in[0].type, fallback.data(),
                  1);
  const StridedCopy copy(box, from, to, size);
  const auto from_bytes = from_offset * static_cast<std::int64_t>(size);
  const auto to_bytes = to_offset * static_cast<std::int64_t>(size);
  return MakeKernel([=](In in, Out out, std::byte*) {
    const std::int64_t count = Elements(out[0]);
    ForElementSize(size, [&](auto zero) {
      decltype(zero) value;
      std::memcpy(&value, Present(in, 2) ? in[2].data : fallback.data(), sizeof(value));
      std::fill_n(MutableData<decltype(zero)>(out[0]), count, value);
    });
    if (!empty) copy.Run(in[0].data + from_bytes, out[0].data + to_bytes);
    return absl::OkStatus();
  });
}

std::int64_t SourceIndex(std::int64_t at, std::int64_t dim, const std::string& mode) {
  if (mode == "wrap") return ((at % dim) + dim) % dim;
  if (mode != "reflect" || dim == 1) return std::clamp<std::int64_t>(at, 0, dim - 1);
  const std::int64_t period = 2 * (dim - 1);
  at = ((at % period) + period) % period;
  return at < dim ? at : period - at;
}

Made MakePad(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const Shape pads, PadWidths(ctx, in));
  const std::string mode = ctx.Text("mode", "constant");
  if (mode == "constant") return MakeConstantPad(ctx, in, out, pads);
  const std::size_t rank = in[0].shape.size();
  const Shape strides = RowMajorStrides(in[0].shape);
  std::vector<Shape> sources(rank);  // for each dimension and place in the output: offset in the input
  for (std::size_t d = 0; d < rank; ++d) {
    for (std::int64_t i = 0; i < out[0].shape[d]; ++i) {
      sources[d].push_back(SourceIndex(i - pads[d], in[0].shape[d], mode) * strides[d]);
    }
  }
  const std::size_t size = CellSize(in[0].type);
  return MakeKernel([sources, size](In in, Out out, std::byte*) {
    const std::int64_t count = Elements(out[0]);
    Shape index(sources.size(), 0);
    ForElementSize(size, [&](auto zero) {
      using U = decltype(zero);
      for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t offset = 0;
        for (std::size_t d = 0; d < index.size(); ++d) offset += sources[d][index[d]];
        MutableData<U>(out[0])[i] = Data<U>(in[0])[offset];
        for (std::size_t d = index.size(); d-- > 0;) {
          if (++index[d] < static_cast<std::int64_t>(sources[d].size())) break;
          index[d] = 0;
        }
      }
    });
    return absl::OkStatus();
  });
}

constexpr Operator kOperators[] = {
    {.name = "Transpose",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferTranspose,
     .make = &MakeTranspose,
     .types = kAnyTypes},
    {.name = "Slice",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferSlice,
     .make = &MakeSlice,
     .types = kAnyTypes},
    {.name = "Pad",
     .min_opset = 2,
     .max_opset = kNewestOpset,
     .infer = &InferPad,
     .make = &MakePad,
     .types = kFixedTypes},
};

}  // namespace

std::span<const Operator> SliceOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
