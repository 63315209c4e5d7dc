// Concat, Split, Expand, Tile.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/strided_copy.hpp"

namespace troupe::gpu {
namespace {

// --- Concat
// -------------------------------------------------------------------------------------------------------

Inferred InferConcat(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, in.empty() ? 1 : in.size(), 1 << 20, kAnyTypes));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 1), in[0].shape.size()));
  Shape shape = in[0].shape;
  for (std::size_t i = 1; i < in.size(); ++i) {
    if (in[i].type != in[0].type) return ctx.Error("the inputs have different types");
    Shape other = in[i].shape;
    bool fits = other.size() == shape.size();
    if (fits) {
      if (__builtin_add_overflow(shape[axis], other[axis], &shape[axis])) return ctx.Error("too long");
      other[axis] = shape[axis];
      fits = other == shape;
    }
    if (!fits) {
      return ctx.Error(absl::StrCat("input ", i, " is ", FormatShape(in[i].shape), ", input 0 ",
                                    FormatShape(in[0].shape), ", on axis ", axis));
    }
  }
  return OneValue(ctx, in[0].type, std::move(shape));
}

struct Slab {  // one input of Concat, or one output of Split, seen as [outer, bytes]
  std::size_t bytes;
  std::size_t offset;
};

Made MakeConcat(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 1), in[0].shape.size()));
  const Shape& shape = out[0].shape;
  const std::int64_t outer = Product(std::span(shape).first(static_cast<std::size_t>(axis)));
  std::vector<Slab> slabs;
  std::size_t row = 0;
  for (const ValueInfo& info : in) {
    const auto inner =
        static_cast<std::size_t>(Product(std::span(info.shape).subspan(static_cast<std::size_t>(axis))));
    slabs.push_back({inner * CellSize(info.type), row});
    row += slabs.back().bytes;
  }
  return MakeKernel([outer, row, slabs](In in, Out out, std::byte*) {
    for (std::size_t i = 0; i < slabs.size(); ++i) {
      for (std::int64_t o = 0; o < outer; ++o) {
        CopyBytes(out[0].data + static_cast<std::size_t>(o) * row + slabs[i].offset,
                  in[i].data + static_cast<std::size_t>(o) * slabs[i].bytes, slabs[i].bytes);
      }
    }
    return absl::OkStatus();
  });
}

// --- Split: sizes as an attribute (to opset 12), as an input, a number of parts (from 18 on), or equal parts
// -------------------------------------------

// From opset 18 on: parts of one length, of which the last may be shorter.
absl::StatusOr<Shape> NumberedParts(const StepContext& ctx, std::int64_t dim, std::int64_t parts) {
  if (parts < 1 || parts != ctx.step.outputs_size()) {
    return ctx.Error(absl::StrCat("num_outputs is ", parts, " for ", ctx.step.outputs_size(), " outputs"));
  }
  const std::int64_t each = dim / parts + (dim % parts == 0 ? 0 : 1);
  const std::int64_t last = dim - each * (parts - 1);
  if (last < 0)
    return ctx.Error(absl::StrCat(dim, " elements do not split into ", parts, " parts of ", each));
  Shape sizes(static_cast<std::size_t>(parts), each);
  sizes.back() = last;
  return sizes;
}

absl::StatusOr<Shape> SplitSizes(const StepContext& ctx, Infos in, std::int64_t dim) {
  Shape sizes = ctx.Ints("split");
  if (Present(in, 1)) {
    TROUPE_ASSIGN_OR_RETURN(sizes, RequireInts(ctx, in, 1, "split"));
  }
  const std::int64_t parts = ctx.step.outputs_size();
  if (sizes.empty() && ctx.opset >= 18 && ctx.Find("num_outputs") != nullptr) {
    return NumberedParts(ctx, dim, ctx.Int("num_outputs", 0));
  }
  if (sizes.empty()) {
    if (parts == 0 || dim % parts != 0) {
      return ctx.Error(absl::StrCat(dim, " elements do not split into ", parts, " equal parts"));
    }
    sizes.assign(static_cast<std::size_t>(parts), dim / parts);
  }
  std::int64_t sum = 0;
  for (std::int64_t size : sizes) {
    if (size < 0 || size > dim)
      return ctx.Error(absl::StrCat("a part of ", size, " out of ", dim, " elements"));
    sum += size;
    if (sum > dim) break;
  }
  if (sum != dim || static_cast<std::int64_t>(sizes.size()) != parts) {
    return ctx.Error(
        absl::StrCat("parts ", FormatShape(sizes), " for ", parts, " outputs do not add up to ", dim));
  }
  return sizes;
}

Inferred InferSplit(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 2, kAnyTypes));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 0), in[0].shape.size()));
  std::vector<ValueInfo> out;
  bool known = true;
  if (Present(in, 1)) {
    TROUPE_ASSIGN_OR_RETURN(std::optional<Shape> sizes, KnownInts(ctx, in, 1));
    known = sizes.has_value();
  }
  Shape sizes(static_cast<std::size_t>(ctx.step.outputs_size()), in[0].shape[axis]);  // at most
  if (known) {
    TROUPE_ASSIGN_OR_RETURN(sizes, SplitSizes(ctx, in, in[0].shape[axis]));
  }
  for (std::int64_t size : sizes) {
    Shape shape = in[0].shape;
    shape[axis] = size;
    TROUPE_ASSIGN_OR_RETURN(ValueInfo value, Value(ctx, in[0].type, std::move(shape), !known));
    out.push_back(std::move(value));
  }
  return out;
}

Made MakeSplit(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 0), in[0].shape.size()));
  const std::int64_t outer = Product(std::span(in[0].shape).first(static_cast<std::size_t>(axis)));
  std::vector<Slab> slabs;
  std::size_t row = 0;
  for (const ValueInfo& info : out) {
    const auto inner =
        static_cast<std::size_t>(Product(std::span(info.shape).subspan(static_cast<std::size_t>(axis))));
    slabs.push_back({inner * CellSize(info.type), row});
    row += slabs.back().bytes;
  }
  return MakeKernel([outer, row, slabs](In in, Out out, std::byte*) {
    for (std::size_t i = 0; i < slabs.size(); ++i) {
      if (out[i].data == nullptr) continue;
      for (std::int64_t o = 0; o < outer; ++o) {
        CopyBytes(out[i].data + static_cast<std::size_t>(o) * slabs[i].bytes,
                  in[0].data + static_cast<std::size_t>(o) * row + slabs[i].offset, slabs[i].bytes);
      }
    }
    return absl::OkStatus();
  });
}

// --- Expand
// -------------------------------------------------------------------------------------------------------

Inferred InferExpand(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kAnyTypes));
  TROUPE_ASSIGN_OR_RETURN(Shape target, RequireInts(ctx, in, 1, "shape"));
  if (auto count = CountElements(target); !count.ok())
    return ctx.Error(std::string(count.status().message()));
  auto shape = BroadcastShapes(in[0].shape, target);
  if (!shape.ok()) return ctx.Error(std::string(shape.status().message()));
  return OneValue(ctx, in[0].type, *std::move(shape));
}

Made MakeExpand(const StepContext&, Infos in, Infos out) {
  const Shape& shape = out[0].shape;
  const Shape own = RowMajorStrides(in[0].shape);
  Shape from(shape.size(), 0);
  const std::size_t lead = shape.size() - in[0].shape.size();
  for (std::size_t i = 0; i < own.size(); ++i) from[lead + i] = in[0].shape[i] == 1 ? 0 : own[i];
  return MakeKernel([copy = StridedCopy(shape, from, RowMajorStrides(shape), CellSize(in[0].type))](
                        In in, Out out, std::byte*) {
    copy.Run(in[0].data, out[0].data);
    return absl::OkStatus();
  });
}

// --- Tile
// ---------------------------------------------------------------------------------------------------------

Inferred InferTile(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kAnyTypes));
  TROUPE_ASSIGN_OR_RETURN(Shape repeats, RequireInts(ctx, in, 1, "repeats"));
  if (repeats.size() != in[0].shape.size()) return ctx.Error("wants one repeat for each dimension");
  for (std::size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i] < 0 || __builtin_mul_overflow(repeats[i], in[0].shape[i], &repeats[i])) {
      return ctx.Error("a repeat is negative or too large");
    }
  }
  return OneValue(ctx, in[0].type, std::move(repeats));
}

// Each dimension is two: which copy, and where in it.
Made MakeTile(const StepContext&, Infos in, Infos out) {
  const Shape own = RowMajorStrides(in[0].shape);
  const Shape target = RowMajorStrides(out[0].shape);
  Shape box;
  Shape from;
  Shape to;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const std::int64_t dim = in[0].shape[i];
    box.insert(box.end(), {dim == 0 ? 0 : out[0].shape[i] / dim, dim});
    from.insert(from.end(), {0, own[i]});
    to.insert(to.end(), {target[i] * dim, target[i]});
  }
  return MakeKernel([copy = StridedCopy(box, from, to, CellSize(in[0].type))](In in, Out out, std::byte*) {
    copy.Run(in[0].data, out[0].data);
    return absl::OkStatus();
  });
}

constexpr Operator kOperators[] = {
    {.name = "Concat",
     .min_opset = 4,
     .max_opset = kNewestOpset,
     .infer = &InferConcat,
     .make = &MakeConcat,
     .types = kAnyTypes},
    {.name = "Split",
     .min_opset = 2,
     .max_opset = kNewestOpset,
     .infer = &InferSplit,
     .make = &MakeSplit,
     .types = kAnyTypes},
    {.name = "Expand",
     .min_opset = 8,
     .max_opset = kNewestOpset,
     .infer = &InferExpand,
     .make = &MakeExpand,
     .types = kAnyTypes},
    {.name = "Tile",
     .min_opset = 6,
     .max_opset = kNewestOpset,
     .infer = &InferTile,
     .make = &MakeTile,
     .types = kAnyTypes},
};

}  // namespace

std::span<const Operator> ConcatOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
