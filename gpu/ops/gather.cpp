// Gather, GatherElements, GatherND. Indices are checked at run time, each before it is followed.
#include "absl/strings/str_cat.h"
#include "gpu/ops/families.hpp"
#include "gpu/ops/indices.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {
namespace {

// --- Gather
// -------------------------------------------------------------------------------------------------------

Inferred InferGather(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kAnyTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kIndexTypes));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 0), in[0].shape.size()));
  Shape shape(in[0].shape.begin(), in[0].shape.begin() + axis);
  shape.insert(shape.end(), in[1].shape.begin(), in[1].shape.end());
  shape.insert(shape.end(), in[0].shape.begin() + axis + 1, in[0].shape.end());
  return OneValue(ctx, in[0].type, std::move(shape));
}

Made MakeGather(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 0), in[0].shape.size()));
  const std::span<const std::int64_t> shape = in[0].shape;
  const std::int64_t outer = Product(shape.first(static_cast<std::size_t>(axis)));
  const std::int64_t dim = shape[axis];
  const std::size_t block =
      static_cast<std::size_t>(Product(shape.subspan(static_cast<std::size_t>(axis) + 1))) *
      CellSize(in[0].type);
  return MakeKernel([=, step = ctx.step](In in, Out out, std::byte*) -> absl::Status {
    const std::int64_t count = Elements(in[1]);
    std::byte* to = out[0].data;
    for (std::int64_t o = 0; o < outer; ++o) {
      const std::byte* from = in[0].data + static_cast<std::size_t>(o * dim) * block;
      for (std::int64_t i = 0; i < count; ++i, to += block) {
        const std::int64_t index = WrapIndex(IntAt(in[1].type, in[1].data, i), dim);
        if (index < 0) return IndexError(step, IntAt(in[1].type, in[1].data, i), dim);
        CopyBytes(to, from + static_cast<std::size_t>(index) * block, block);
      }
    }
    return absl::OkStatus();
  });
}

// --- GatherElements
// -----------------------------------------------------------------------------------------------

Inferred InferGatherElements(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kAnyTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kIndexTypes));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 0), in[0].shape.size()));
  TROUPE_RETURN_IF_ERROR(CheckIndexBox(ctx, in[0].shape, in[1].shape, axis));
  return OneValue(ctx, in[0].type, in[1].shape);
}

Made MakeGatherElements(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 0), in[0].shape.size()));
  const std::size_t size = CellSize(in[0].type);
  return MakeKernel(
      [=, walk = IndexBoxWalk(in[0].shape, in[1].shape, axis), step = ctx.step](In in, Out out, std::byte*) {
        return walk.Run(step, in[1], [&](std::int64_t place, std::int64_t target) {
          CopyBytes(out[0].data + static_cast<std::size_t>(place) * size,
                    in[0].data + static_cast<std::size_t>(target) * size, size);
        });
      });
}

// --- GatherND
// -----------------------------------------------------------------------------------------------------

Inferred InferGatherND(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kAnyTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kIndexTypes));
  const std::int64_t batch = ctx.Int("batch_dims", 0);
  const auto rank = static_cast<std::int64_t>(in[0].shape.size());
  const auto index_rank = static_cast<std::int64_t>(in[1].shape.size());
  if (batch < 0 || batch >= index_rank || batch > rank || in[1].shape.back() > rank - batch) {
    return ctx.Error(absl::StrCat("indices ", FormatShape(in[1].shape), " with batch_dims ", batch,
                                  " do not fit data ", FormatShape(in[0].shape)));
  }
  Shape shape(in[1].shape.begin(), in[1].shape.end() - 1);
  for (std::int64_t i = 0; i < batch; ++i) {
    if (in[0].shape[i] != in[1].shape[i]) return ctx.Error("the batch dimensions differ");
  }
  shape.insert(shape.end(), in[0].shape.begin() + batch + in[1].shape.back(), in[0].shape.end());
  return OneValue(ctx, in[0].type, std::move(shape));
}

Made MakeGatherND(const StepContext& ctx, Infos in, Infos) {
  const auto batch_dims = static_cast<std::size_t>(ctx.Int("batch_dims", 0));
  const auto depth = static_cast<std::size_t>(in[1].shape.back());
  const std::span<const std::int64_t> shape = in[0].shape;
  const std::int64_t batches = Product(shape.first(batch_dims));
  const Shape dims(shape.begin() + batch_dims, shape.begin() + batch_dims + depth);
  const std::size_t block =
      static_cast<std::size_t>(Product(shape.subspan(batch_dims + depth))) * CellSize(in[0].type);
  return MakeKernel([=, step = ctx.step](In in, Out out, std::byte*) -> absl::Status {
    const std::int64_t tuples =
        batches == 0 ? 0 : Product(std::span(in[1].shape).first(in[1].shape.size() - 1)) / batches;
    const std::size_t batch_bytes = static_cast<std::size_t>(Product(dims)) * block;
    for (std::int64_t b = 0; b < batches; ++b) {
      for (std::int64_t t = 0; t < tuples; ++t) {
        const std::int64_t tuple = b * tuples + t;
        TROUPE_ASSIGN_OR_RETURN(const std::int64_t place, TupleOffset(step, in[1], tuple, dims));
        CopyBytes(
            out[0].data + static_cast<std::size_t>(tuple) * block,
            in[0].data + static_cast<std::size_t>(b) * batch_bytes + static_cast<std::size_t>(place) * block,
            block);
      }
    }
    return absl::OkStatus();
  });
}

constexpr Operator kOperators[] = {
    {.name = "Gather",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferGather,
     .make = &MakeGather,
     .types = kAnyTypes},
    {.name = "GatherElements",
     .min_opset = 11,
     .max_opset = kNewestOpset,
     .infer = &InferGatherElements,
     .make = &MakeGatherElements,
     .types = kAnyTypes},
    {.name = "GatherND",
     .min_opset = 11,
     .max_opset = kNewestOpset,
     .infer = &InferGatherND,
     .make = &MakeGatherND,
     .types = kAnyTypes},
};

}  // namespace

std::span<const Operator> GatherOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
