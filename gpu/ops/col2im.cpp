// Col2Im (opset 18): columns of image blocks, summed where blocks overlap.
#include <algorithm>
#include <array>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/parallel_ranges.hpp"
#include "gpu/ops/window.hpp"

namespace troupe::gpu {
namespace {

struct Blocks {
  Shape image;
  Window window;  // of a block, over the image
  std::int64_t channels = 0;
  std::int64_t block = 1;  // elements
  std::int64_t count = 1;  // places of the block, which are the columns
};

absl::StatusOr<Blocks> ReadBlocks(const StepContext& ctx, Infos in) {
  Blocks blocks;
  TROUPE_ASSIGN_OR_RETURN(blocks.image, RequireInts(ctx, in, 1, "image_shape"));
  TROUPE_ASSIGN_OR_RETURN(Shape block, RequireInts(ctx, in, 2, "block_shape"));
  if (block.empty() || block.size() != blocks.image.size() || in[0].shape.size() != 3) {
    return ctx.Error(absl::StrCat("wants columns [N,C,L] and as many block as image dimensions, has ",
                                  FormatShape(in[0].shape), ", ", FormatShape(block), " and ",
                                  FormatShape(blocks.image)));
  }
  TROUPE_ASSIGN_OR_RETURN(blocks.window, ReadWindow(ctx, blocks.image, block));
  TROUPE_ASSIGN_OR_RETURN(blocks.block, CountElements(block));
  TROUPE_ASSIGN_OR_RETURN(blocks.count, CountElements(blocks.window.out));
  if (in[0].shape[1] % blocks.block != 0 || in[0].shape[2] != blocks.count) {
    return ctx.Error(absl::StrCat("columns ", FormatShape(in[0].shape), " are not of blocks of ",
                                  blocks.block, " elements at ", blocks.count, " places"));
  }
  blocks.channels = in[0].shape[1] / blocks.block;
  return blocks;
}

Inferred InferCol2Im(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 3, 3, kNumberTypes));
  TROUPE_ASSIGN_OR_RETURN(const Blocks blocks, ReadBlocks(ctx, in));
  Shape shape = {in[0].shape[0], blocks.channels};
  shape.insert(shape.end(), blocks.image.begin(), blocks.image.end());
  return OneValue(ctx, in[0].type, std::move(shape));
}

// For element `tap` of the block at place `place`: where it lies in the image; -1 in the padding.
std::int64_t PlaceOf(const Blocks& blocks, std::int64_t tap, std::int64_t place) {
  const Window& w = blocks.window;
  std::int64_t at = 0;
  std::int64_t stride = 1;
  for (std::size_t d = blocks.image.size(); d-- > 0;) {
    const std::int64_t x = place % w.out[d] * w.strides[d] - w.begin[d] + tap % w.kernel[d] * w.dilations[d];
    if (x < 0 || x >= blocks.image[d]) return -1;
    at += x * stride;
    stride *= blocks.image[d];
    place /= w.out[d];
    tap /= w.kernel[d];
  }
  return at;
}

template <class T>
void AddColumns(const Blocks& blocks, const T* columns, T* image) {
  for (std::int64_t tap = 0; tap < blocks.block; ++tap) {
    for (std::int64_t place = 0; place < blocks.count; ++place) {
      const std::int64_t at = PlaceOf(blocks, tap, place);
      if (at >= 0) image[at] = static_cast<T>(image[at] + columns[tap * blocks.count + place]);
    }
  }
}

// Integers as unsigned ones, whose sums wrap.
template <class T>
using Summed =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;

Made MakeCol2Im(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Blocks blocks, ReadBlocks(ctx, in));
  return MakeKernel([blocks](In in, Out out, std::byte*) {
    const std::int64_t pixels = Product(blocks.image);
    const std::int64_t each = blocks.block * blocks.count;
    std::fill_n(out[0].data, BytesOf(out[0]), std::byte{0});
    ForWideType(in[0].type, [&](auto zero) {
      using T = Summed<decltype(zero)>;
      ParallelRanges(in[0].shape[0] * blocks.channels, each, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i)
          AddColumns(blocks, Data<T>(in[0]) + i * each, MutableData<T>(out[0]) + i * pixels);
      });
      return 0;
    });
    return absl::OkStatus();
  });
}

// The two shapes stay INT64.
Made MakeCol2ImWide(const StepContext& ctx, Infos in, Infos out) {
  const proto::DataType wide = WideType(in[0].type);
  return MakeConverted(&MakeCol2Im, ctx, in, out, std::array{wide, in[1].type, in[2].type}, std::array{wide});
}

constexpr Operator kOperators[] = {
    {.name = "Col2Im",
     .min_opset = 18,
     .max_opset = kNewestOpset,
     .infer = &InferCol2Im,
     .make = &MakeCol2ImWide,
     .types = kNumberTypes},
};

}  // namespace

std::span<const Operator> Col2ImOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
