// com.microsoft.MatMulNBits: a product with weights of 4 or 8 bits, which have a scale for each block of a column. They
// stay packed in memory; a run unpacks one column at a time.
#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "gpu/ops/block_rows.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/inner_kernel.hpp"
#include "gpu/ops/parallel_ranges.hpp"

namespace troupe::gpu {
namespace {

constexpr TypeSet kTypes = TypesOf({proto::FP32, proto::FP16, proto::BF16});
constexpr std::int64_t kLeastBlock = 16;
constexpr std::int64_t kMostBlock = 256;
// Each has an unpacked column of its own in scratch memory.
constexpr std::int64_t kLanes = 16;

// Inputs.
constexpr std::size_t kPacked = 1, kScales = 2, kZeros = 3, kGroups = 4, kBias = 5;

struct BlockProduct {
  std::int64_t rows = 0, k = 0, n = 0;
  std::int64_t bits = 4, block = 0;
  bool packed_zeros = false;  // with as many bits as the weights; else floats

  [[nodiscard]] std::int64_t blocks() const { return (k - 1) / block + 1; }
  [[nodiscard]] std::int64_t block_bytes() const { return block * bits / 8; }
  [[nodiscard]] std::int64_t zero_bytes() const { return (blocks() * bits + 7) / 8; }  // of a column
};

absl::StatusOr<BlockProduct> ReadSizes(const StepContext& ctx) {
  BlockProduct p;
  p.k = ctx.Int("K", 0);
  p.n = ctx.Int("N", 0);
  p.bits = ctx.Int("bits", 4);
  p.block = ctx.Int("block_size", 0);
  if (p.bits != 4 && p.bits != 8)
    return ctx.Error(
        absl::StrCat("bits is ", p.bits, ", supported are 4 and 8; quantise the weights to one of them"));
  if (p.block < kLeastBlock || p.block > kMostBlock ||
      !std::has_single_bit(static_cast<std::uint64_t>(p.block)))
    return ctx.Error(absl::StrCat("block_size is ", p.block, ", wants a power of 2 from ", kLeastBlock,
                                  " to ", kMostBlock));
  if (p.k < 1 || p.n < 1 || !CountElements(Shape{p.k, p.n}).ok())
    return ctx.Error(absl::StrCat("K is ", p.k, " and N is ", p.n, ", wants sizes of a matrix"));
  if (ctx.Int("weight_prepacked", 0) != 0)
    return ctx.Error("weight_prepacked is not supported; export the model without it");
  const std::int64_t accuracy = ctx.Int("accuracy_level", 0);
  if (accuracy < 0 || accuracy > 4)
    return ctx.Error(absl::StrCat("accuracy_level is ", accuracy, ", wants 0 to 4"));
  return p;
}

// `shape`, or the same elements in one dimension, as older exporters write it.
bool IsShaped(const ValueInfo& info, const Shape& shape) {
  return info.shape == shape || info.shape == Shape{Product(shape)};
}

absl::Status CheckBlocks(const StepContext& ctx, Infos in, BlockProduct& p) {
  const Shape packed = {p.n, p.blocks(), p.block_bytes()};
  if (in[kPacked].type != proto::UINT8 || in[kPacked].shape != packed) {
    return ctx.Error(absl::StrCat("the weights are ", proto::DataType_Name(in[kPacked].type),
                                  FormatShape(in[kPacked].shape), ", wants UINT8", FormatShape(packed),
                                  " for K ", p.k, ", N ", p.n, ", ", p.bits, " bits and blocks of ",
                                  p.block));
  }
  const Shape scales = {p.n, p.blocks()};
  if (in[kScales].type != in[0].type || !IsShaped(in[kScales], scales)) {
    return ctx.Error(absl::StrCat("the scales are ", proto::DataType_Name(in[kScales].type),
                                  FormatShape(in[kScales].shape), ", wants ",
                                  proto::DataType_Name(in[0].type), FormatShape(scales)));
  }
  if (!Present(in, kZeros)) return absl::OkStatus();
  p.packed_zeros = in[kZeros].type == proto::UINT8;
  const Shape zeros = {p.n, p.packed_zeros ? p.zero_bytes() : p.blocks()};
  if ((!p.packed_zeros && in[kZeros].type != in[0].type) || !IsShaped(in[kZeros], zeros)) {
    return ctx.Error(absl::StrCat("the zero points are ", proto::DataType_Name(in[kZeros].type),
                                  FormatShape(in[kZeros].shape), ", wants UINT8[", p.n, ",", p.zero_bytes(),
                                  "] or ", proto::DataType_Name(in[0].type), FormatShape(scales)));
  }
  return absl::OkStatus();
}

absl::StatusOr<BlockProduct> ReadBlockProduct(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(
      CheckAttributes(ctx, {"K", "N", "accuracy_level", "bits", "block_size", "weight_prepacked"}));
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 3, 6, kTypes));
  if (Present(in, kGroups))
    return ctx.Error("input 4 (g_idx) is not supported; export the model without reordered groups");
  TROUPE_ASSIGN_OR_RETURN(BlockProduct p, ReadSizes(ctx));
  const Shape& a = in[0].shape;
  if (a.empty() || a.back() != p.k)
    return ctx.Error(absl::StrCat("input ", FormatShape(a), " must have rows of K = ", p.k, " elements"));
  p.rows = Product(std::span(a).first(a.size() - 1));
  TROUPE_RETURN_IF_ERROR(CheckBlocks(ctx, in, p));
  if (Present(in, kBias) && (in[kBias].shape != Shape{p.n} || in[kBias].type != in[0].type))
    return ctx.Error(absl::StrCat("the bias ", FormatShape(in[kBias].shape), " must be [", p.n, "]"));
  return p;
}

Inferred InferBlockProduct(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const BlockProduct p, ReadBlockProduct(ctx, in));
  Shape out = in[0].shape;
  out.back() = p.n;
  return OneValue(ctx, in[0].type, std::move(out));
}

float ZeroOf(const BlockProduct& p, In in, std::int64_t column, std::int64_t block) {
  if (!Present(in, kZeros)) return p.bits == 4 ? 8 : 128;
  if (!p.packed_zeros) return Data<float>(in[kZeros])[column * p.blocks() + block];
  const std::uint8_t* zeros = Data<std::uint8_t>(in[kZeros]) + column * p.zero_bytes();
  if (p.bits == 8) return zeros[block];
  return static_cast<float>(block % 2 == 0 ? zeros[block / 2] & 15 : zeros[block / 2] >> 4);
}

void UnpackColumn(const BlockProduct& p, const BlockLoops& loops, In in, std::int64_t column, float* out) {
  const std::uint8_t* packed = Data<std::uint8_t>(in[kPacked]) + column * p.blocks() * p.block_bytes();
  const float* scales = Data<float>(in[kScales]) + column * p.blocks();
  const auto unpack = p.bits == 4 ? loops.unpack4 : loops.unpack8;
  for (std::int64_t b = 0; b < p.blocks(); ++b) {
    const std::int64_t count = std::min(p.block, p.k - b * p.block);
    unpack(packed + b * p.block_bytes(), count, scales[b], ZeroOf(p, in, column, b), out + b * p.block);
  }
}

Made MakeBlockProduct(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const BlockProduct p, ReadBlockProduct(ctx, in));
  ScratchParts parts;
  std::array<std::uint64_t, kLanes> columns{};
  for (std::uint64_t& column : columns) column = parts.AddFloats(p.k);
  return MakeKernel(
      [p, columns, loops = FindBlockLoops()](In in, Out out, std::byte* scratch) {
        const float* bias = Present(in, kBias) ? Data<float>(in[kBias]) : nullptr;
        ParallelRanges(kLanes, (p.rows + 1) * p.k * p.n / kLanes, [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t lane = first; lane < last; ++lane) {
            float* column = reinterpret_cast<float*>(scratch + columns[static_cast<std::size_t>(lane)]);
            for (std::int64_t c = p.n * lane / kLanes; c < p.n * (lane + 1) / kLanes; ++c) {
              UnpackColumn(p, loops, in, c, column);
              loops.multiply(Data<float>(in[0]), p.rows, p.k, column, bias != nullptr ? bias[c] : 0,
                             MutableData<float>(out[0]) + c, p.n);
            }
          }
        });
        return absl::OkStatus();
      },
      parts.size());
}

constexpr Operator kOperators[] = {
    {.name = "com.microsoft.MatMulNBits",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferBlockProduct,
     .make = &FloatWidened<&MakeBlockProduct>,
     .types = kTypes},
};

}  // namespace

std::span<const Operator> BlockMatMulOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
