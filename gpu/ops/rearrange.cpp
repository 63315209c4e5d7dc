// DepthToSpace, SpaceToDepth, ReverseSequence, CumSum; and what depends on the data: Compress, NonZero.
#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/strided_copy.hpp"

namespace troupe::gpu {
namespace {

// --- DepthToSpace, SpaceToDepth
// -------------------------------------------------------------------------------------

absl::StatusOr<std::int64_t> BlockSize(const StepContext& ctx, Infos in) {
  const std::int64_t block = ctx.Int("blocksize", 0);
  if (in[0].shape.size() != 4)
    return ctx.Error(absl::StrCat("wants [N,C,H,W], has ", FormatShape(in[0].shape)));
  if (block < 1 || block > 65536) return ctx.Error(absl::StrCat("blocksize is ", block));
  return block;
}

Inferred InferDepthToSpace(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kFixedTypes));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t block, BlockSize(ctx, in));
  const Shape& s = in[0].shape;
  const std::string mode = ctx.Text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") return ctx.Error(absl::StrCat("unknown mode '", mode, "'"));
  if (s[1] % (block * block) != 0) return ctx.Error("the channels do not divide by the block");
  if (s[2] > (std::int64_t{1} << 40) || s[3] > (std::int64_t{1} << 40)) return ctx.Error("too large");
  return OneValue(ctx, in[0].type, {s[0], s[1] / (block * block), s[2] * block, s[3] * block});
}

Inferred InferSpaceToDepth(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kFixedTypes));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t block, BlockSize(ctx, in));
  const Shape& s = in[0].shape;
  if (s[2] % block != 0 || s[3] % block != 0)
    return ctx.Error("height or width does not divide by the block");
  if (s[1] > (std::int64_t{1} << 30)) return ctx.Error("too many channels");
  return OneValue(ctx, in[0].type, {s[0], s[1] * block * block, s[2] / block, s[3] / block});
}

// Both are one transposition of [N, C, H, b, W, b] on the wide side; only the order of the depth differs.
Made MakeBlocks(const Shape& depth, const Shape& space, std::int64_t block, bool channels_first,
                bool to_space, std::size_t size) {
  const std::int64_t channels = space[1];
  const Shape box = {space[0], channels, depth[2], block, depth[3], block};
  const Shape s = RowMajorStrides(space);
  const Shape d = RowMajorStrides(depth);
  const Shape in_space = {s[0], s[1], s[2] * block, s[2], block, 1};
  const std::int64_t unit = d[1];
  const Shape in_depth = channels_first
                             ? Shape{d[0], unit * block * block, d[2], unit * block, 1, unit}
                             : Shape{d[0], unit, d[2], unit * block * channels, 1, unit * channels};
  const StridedCopy copy(box, to_space ? in_depth : in_space, to_space ? in_space : in_depth, size);
  return MakeKernel([copy](In in, Out out, std::byte*) {
    copy.Run(in[0].data, out[0].data);
    return absl::OkStatus();
  });
}

Made MakeDepthToSpace(const StepContext& ctx, Infos in, Infos out) {
  return MakeBlocks(in[0].shape, out[0].shape, ctx.Int("blocksize", 0), ctx.Text("mode", "DCR") == "CRD",
                    true, CellSize(in[0].type));
}

Made MakeSpaceToDepth(const StepContext& ctx, Infos in, Infos out) {
  return MakeBlocks(out[0].shape, in[0].shape, ctx.Int("blocksize", 0), false, false, CellSize(in[0].type));
}

// --- ReverseSequence
// ----------------------------------------------------------------------------------------------

Inferred InferReverseSequence(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kFixedTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, TypesOf({proto::INT64})));
  const std::int64_t batch = ctx.Int("batch_axis", 1);
  const std::int64_t time = ctx.Int("time_axis", 0);
  if (in[0].shape.size() < 2 || batch + time != 1 || batch * time != 0) {
    return ctx.Error("batch_axis and time_axis must be 0 and 1, of two dimensions or more");
  }
  if (in[1].shape != Shape{in[0].shape[batch]}) return ctx.Error("wants one length for each batch");
  return OneValue(ctx, in[0].type, in[0].shape);
}

Made MakeReverseSequence(const StepContext& ctx, Infos in, Infos) {
  const bool batch_first = ctx.Int("batch_axis", 1) == 0;
  const Shape& shape = in[0].shape;
  const std::int64_t batches = shape[batch_first ? 0 : 1];
  const std::int64_t times = shape[batch_first ? 1 : 0];
  const std::size_t block =
      static_cast<std::size_t>(Product(std::span(shape).subspan(2))) * CellSize(in[0].type);
  return MakeKernel([=, step = ctx.step](In in, Out out, std::byte*) -> absl::Status {
    for (std::int64_t b = 0; b < batches; ++b) {
      const std::int64_t length = Data<std::int64_t>(in[1])[b];
      if (length < 0 || length > times) {
        return StepContext{step}.Error(absl::StrCat("length ", length, " of ", times, " steps"));
      }
      for (std::int64_t t = 0; t < times; ++t) {
        const std::int64_t source = t < length ? length - 1 - t : t;
        const auto place = [&](std::int64_t at) {
          return static_cast<std::size_t>(batch_first ? b * times + at : at * batches + b) * block;
        };
        CopyBytes(out[0].data + place(t), in[0].data + place(source), block);
      }
    }
    return absl::OkStatus();
  });
}

// --- CumSum
// -------------------------------------------------------------------------------------------------------

Inferred InferCumSum(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kNumberTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kIndexTypes));
  if (in[1].elements() != 1) return ctx.Error("axis must be one number");
  if (in[1].constant != nullptr) {
    TROUPE_RETURN_IF_ERROR(
        NormalizeAxis(ctx, IntAt(in[1].type, in[1].constant, 0), in[0].shape.size()).status());
  }
  return OneValue(ctx, in[0].type, in[0].shape);
}

template <class T>
void SumAlong(const T* in, T* out, std::int64_t dim, std::int64_t stride, bool exclusive, bool reverse) {
  using W =
      typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
  W sum = 0;
  for (std::int64_t i = 0; i < dim; ++i) {
    const std::int64_t at = (reverse ? dim - 1 - i : i) * stride;
    const W value = static_cast<W>(in[at]);
    out[at] = static_cast<T>(exclusive ? sum : static_cast<W>(sum + value));
    sum = static_cast<W>(sum + value);
  }
}

Made MakeCumSum(const StepContext& ctx, Infos, Infos) {
  const bool exclusive = ctx.Int("exclusive", 0) != 0;
  const bool reverse = ctx.Int("reverse", 0) != 0;
  return MakeKernel([=, step = ctx.step](In in, Out out, std::byte*) -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(
        const std::int64_t axis,
        NormalizeAxis(StepContext{step}, IntAt(in[1].type, in[1].data, 0), in[0].shape.size()));
    const std::int64_t dim = in[0].shape[axis];
    const std::int64_t stride = Product(std::span(in[0].shape).subspan(static_cast<std::size_t>(axis) + 1));
    const std::int64_t lines = dim == 0 ? 0 : Elements(in[0]) / dim;
    ForWideType(in[0].type, [&](auto zero) {
      using T = decltype(zero);
      for (std::int64_t line = 0; line < lines; ++line) {
        const std::int64_t start = line / stride * stride * dim + line % stride;
        SumAlong(Data<T>(in[0]) + start, MutableData<T>(out[0]) + start, dim, stride, exclusive, reverse);
      }
      return 0;
    });
    return absl::OkStatus();
  });
}

// --- Compress: along an axis, or of the flat tensor
// ------------------------------------------------------------------

Inferred InferCompress(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kAnyTypes));
  TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, 1, kBoolType));
  if (in[1].shape.size() != 1) return ctx.Error("the condition must be a list");
  if (ctx.Find("axis") == nullptr) return OneValue(ctx, in[0].type, {in[0].elements()}, true);
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(ctx, ctx.Int("axis", 0), in[0].shape.size()));
  return OneValue(ctx, in[0].type, in[0].shape.empty() ? Shape{1} : in[0].shape, axis >= 0);
}

Made MakeCompress(const StepContext& ctx, Infos in, Infos) {
  std::int64_t axis = -1;
  if (ctx.Find("axis") != nullptr) {
    TROUPE_ASSIGN_OR_RETURN(axis, NormalizeAxis(ctx, ctx.Int("axis", 0), in[0].shape.size()));
  }
  return MakeKernel([axis](In in, Out out, std::byte*) {
    const Shape flat = {Elements(in[0])};
    const Shape& shape = axis < 0 ? flat : in[0].shape;
    const std::size_t along = axis < 0 ? 0 : static_cast<std::size_t>(axis);
    const std::int64_t dim = std::min(shape[along], Elements(in[1]));
    const std::int64_t outer = Product(std::span(shape).first(along));
    const std::size_t block =
        static_cast<std::size_t>(Product(std::span(shape).subspan(along + 1))) * CellSize(in[0].type);
    const auto* keep = Data<std::uint8_t>(in[1]);
    std::byte* to = out[0].data;
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < dim; ++i) {
        if (keep[i] == 0) continue;
        CopyBytes(to, in[0].data + static_cast<std::size_t>(o * shape[along] + i) * block, block);
        to += block;
      }
    }
    out[0].shape = shape;
    out[0].shape[along] = std::count_if(keep, keep + dim, [](std::uint8_t k) { return k != 0; });
    return absl::OkStatus();
  });
}

// --- NonZero
// ------------------------------------------------------------------------------------------------------

Inferred InferNonZero(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kFixedTypes));
  const auto rank = static_cast<std::int64_t>(in[0].shape.size());
  return OneValue(ctx, proto::INT64, {rank, in[0].elements()}, true);
}

// Computed on BOOL (MakeConverted below). Coordinates lie as [rank, count], so the count comes first.
Made MakeNonZeroOf(const StepContext&, Infos, Infos) {
  return MakeKernel([](In in, Out out, std::byte*) {
    const std::int64_t n = Elements(in[0]);
    const auto* data = Data<std::uint8_t>(in[0]);
    const std::int64_t count = std::count_if(data, data + n, [](std::uint8_t x) { return x != 0; });
    const Shape strides = RowMajorStrides(in[0].shape);
    auto* to = MutableData<std::int64_t>(out[0]);
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      if (data[i] == 0) continue;
      for (std::size_t d = 0; d < strides.size(); ++d) {
        to[static_cast<std::int64_t>(d) * count + found] = i / strides[d] % in[0].shape[d];
      }
      ++found;
    }
    out[0].shape = {static_cast<std::int64_t>(strides.size()), count};
    return absl::OkStatus();
  });
}

Made MakeNonZero(const StepContext& ctx, Infos in, Infos out) {
  return MakeConverted(&MakeNonZeroOf, ctx, in, out, std::array{proto::BOOL}, std::array{proto::INT64});
}

constexpr Operator kOperators[] = {
    {.name = "DepthToSpace",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferDepthToSpace,
     .make = &MakeDepthToSpace,
     .types = kFixedTypes},
    {.name = "SpaceToDepth",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferSpaceToDepth,
     .make = &MakeSpaceToDepth,
     .types = kFixedTypes},
    {.name = "ReverseSequence",
     .min_opset = 10,
     .max_opset = kNewestOpset,
     .infer = &InferReverseSequence,
     .make = &MakeReverseSequence,
     .types = kFixedTypes},
    {.name = "CumSum",
     .min_opset = 11,
     .max_opset = kNewestOpset,
     .infer = &InferCumSum,
     .make = &Widened<&MakeCumSum>,
     .types = kNumberTypes},
    {.name = "Compress",
     .min_opset = 9,
     .max_opset = kNewestOpset,
     .infer = &InferCompress,
     .make = &MakeCompress,
     .types = kAnyTypes,
     .sizes_output = true},
    {.name = "NonZero",
     .min_opset = 9,
     .max_opset = kNewestOpset,
     .infer = &InferNonZero,
     .make = &MakeNonZero,
     .types = kFixedTypes,
     .sizes_output = true},
};

}  // namespace

std::span<const Operator> RearrangeOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
