// com.microsoft.MatMulNBits: a product with weights of 4 or 8 bits, which have a scale for each block of a column. They
// stay packed in memory; a run unpacks them as it multiplies them, or, for many rows, 128 columns at a time.
#include <algorithm>
#include <array>
#include <bit>
#include <memory>

#include "absl/strings/str_cat.h"
#include "gpu/ops/block_rows.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/inner_kernel.hpp"
#include "gpu/ops/parallel_ranges.hpp"
#include "gpu/ops/product_program.hpp"

namespace troupe::gpu {
namespace {

constexpr TypeSet kTypes = TypesOf({proto::FP32, proto::FP16, proto::BF16});
constexpr std::int64_t kLeastBlock = 16;
constexpr std::int64_t kMostBlock = 256;
// Each has the zero points of a column in scratch memory.
constexpr std::int64_t kLanes = 16;
// From so many rows on, columns are unpacked together and multiplied by oneDNN.
constexpr std::int64_t kLeastRowsOfPanel = 8;
constexpr std::int64_t kPanel = 128;

// Inputs.
constexpr std::size_t kPacked = 1, kScales = 2, kZeros = 3, kGroups = 4, kBias = 5;

struct BlockProduct {
  std::int64_t rows = 0, k = 0, n = 0;
  std::int64_t bits = 4, block = 0;
  bool packed_zeros = false;  // with as many bits as the weights; else floats

  [[nodiscard]] std::int64_t blocks() const { return (k - 1) / block + 1; }
  [[nodiscard]] std::int64_t padded() const { return blocks() * block; }
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

// A column of weights; its zero points are written to `zeros`.
PackedBlocks ColumnOf(const BlockProduct& p, In in, std::int64_t column, float* zeros) {
  for (std::int64_t b = 0; b < p.blocks(); ++b) zeros[b] = ZeroOf(p, in, column, b);
  return {Data<std::uint8_t>(in[kPacked]) + column * p.blocks() * p.block_bytes(),
          Data<float>(in[kScales]) + column * p.blocks(), zeros, p.blocks(), p.block};
}

// The input's rows in the order in which a column is unpacked, with zeros up to whole blocks.
void ArrangeRows(const BlockProduct& p, const float* from, float* to) {
  ParallelRanges(p.rows, p.padded(), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const float* row = from + r * p.k;
      float* out = to + r * p.padded();
      for (std::int64_t b = 0; b < p.padded(); b += p.block) {
        for (std::int64_t i = 0; i < p.block; ++i) {
          const std::int64_t k = b + i;
          const std::int64_t place = p.bits == 4 ? i / 2 + (i % 2) * (p.block / 2) : i;
          out[b + place] = k < p.k ? row[k] : 0;
        }
      }
    }
  });
}

// One column at a time, multiplied as it is unpacked.
class ColumnKernel final : public Kernel {
 public:
  explicit ColumnKernel(const BlockProduct& product) : p_(product), loops_(FindBlockLoops(product.bits)) {
    rows_ = parts_.AddFloats(p_.rows * p_.padded());
    for (std::uint64_t& zeros : zeros_) zeros = parts_.AddFloats(p_.blocks());
  }
  [[nodiscard]] Bytes scratch() const override { return parts_.size(); }

  absl::Status Run(In in, Out out, std::byte* scratch) const override {
    float* const rows = reinterpret_cast<float*>(scratch + rows_);
    ArrangeRows(p_, Data<float>(in[0]), rows);
    const float* bias = Present(in, kBias) ? Data<float>(in[kBias]) : nullptr;
    ParallelRanges(kLanes, p_.rows * p_.k * p_.n / kLanes, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t lane = first; lane < last; ++lane) {
        float* zeros = reinterpret_cast<float*>(scratch + zeros_[static_cast<std::size_t>(lane)]);
        for (std::int64_t c = p_.n * lane / kLanes; c < p_.n * (lane + 1) / kLanes; ++c) {
          const PackedBlocks column = ColumnOf(p_, in, c, zeros);
          for (std::int64_t r = 0; r < p_.rows; ++r)
            MutableData<float>(out[0])[r * p_.n + c] =
                loops_.multiply(column, rows + r * p_.padded()) + (bias != nullptr ? bias[c] : 0);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  BlockProduct p_;
  BlockLoops loops_;
  ScratchParts parts_;
  std::uint64_t rows_ = 0;
  std::array<std::uint64_t, kLanes> zeros_{};
};

// Some columns at a time, whose product is oneDNN's: for many rows.
class PanelKernel final : public Kernel {
 public:
  static Made Make(const StepContext& ctx, const BlockProduct& product, bool bias) {
    auto kernel = std::make_unique<PanelKernel>();
    kernel->p_ = product;
    kernel->loops_ = FindBlockLoops(product.bits);
    ScratchParts& parts = kernel->parts_;
    kernel->rows_ = parts.AddFloats(product.rows * product.padded());
    kernel->panel_ = parts.AddFloats(kPanel * product.padded());
    kernel->zeros_ = parts.AddFloats(kPanel * product.blocks());
    const std::int64_t rest = product.n % kPanel;
    if (product.n >= kPanel) {
      TROUPE_ASSIGN_OR_RETURN(kernel->whole_, Multiplied(ctx, product, kPanel, bias));
      kernel->whole_scratch_ = parts.Add(kernel->whole_->scratch().count());
    }
    if (rest > 0) {
      TROUPE_ASSIGN_OR_RETURN(kernel->rest_, Multiplied(ctx, product, rest, bias));
      kernel->rest_scratch_ = parts.Add(kernel->rest_->scratch().count());
    }
    return kernel;
  }
  [[nodiscard]] Bytes scratch() const override { return parts_.size(); }

  absl::Status Run(In in, Out out, std::byte* scratch) const override {
    ArrangeRows(p_, Data<float>(in[0]), reinterpret_cast<float*>(scratch + rows_));
    std::array<TensorView, 3> inner = {FloatView({}, scratch + rows_), FloatView({}, scratch + panel_), {}};
    for (std::int64_t c = 0; c < p_.n; c += kPanel) {
      const std::int64_t columns = std::min(kPanel, p_.n - c);
      ParallelRanges(columns, p_.padded(), [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i)
          loops_.unpack(ColumnOf(p_, in, c + i, reinterpret_cast<float*>(scratch + zeros_) + i * p_.blocks()),
                        reinterpret_cast<float*>(scratch + panel_) + i * p_.padded());
      });
      const auto offset = static_cast<std::size_t>(c) * sizeof(float);
      if (Present(in, kBias)) inner[2] = FloatView({}, in[kBias].data + offset);
      TensorView result = FloatView({}, out[0].data + offset);
      const bool whole = columns == kPanel;
      TROUPE_RETURN_IF_ERROR(
          (whole ? *whole_ : *rest_)
              .Run(inner, std::span(&result, 1), scratch + (whole ? whole_scratch_ : rest_scratch_)));
    }
    return absl::OkStatus();
  }

 private:
  // Rows times `columns` unpacked ones, into as many columns of the result.
  static Made Multiplied(const StepContext& ctx, const BlockProduct& p, std::int64_t columns, bool bias) {
    const auto described = [](const Shape& dims, const Shape& strides) {
      return dnnl::memory::desc(dims, dnnl::memory::data_type::f32, strides);
    };
    Multiplication product;
    product.a = RowMajorDesc(Shape{p.rows, p.padded()});
    product.b_dims = {p.padded(), columns};
    product.b = described(product.b_dims, {1, p.padded()});
    product.out = described({p.rows, columns}, {p.n, 1});
    if (bias) product.bias = RowMajorDesc(Shape{1, columns});
    const std::vector<ValueInfo> in(2);
    return GuardDnnl(ctx, [&] { return MakeProduct(ctx, product, in); });
  }

  BlockProduct p_;
  BlockLoops loops_;
  ScratchParts parts_;
  std::unique_ptr<Kernel> whole_, rest_;  // products with kPanel columns, and with those that are left
  std::uint64_t rows_ = 0, panel_ = 0, zeros_ = 0, whole_scratch_ = 0, rest_scratch_ = 0;
};

Made MakeBlockProduct(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const BlockProduct p, ReadBlockProduct(ctx, in));
  if (out[0].elements() == 0) return EmptyKernel();
  if (p.rows < kLeastRowsOfPanel) return std::unique_ptr<Kernel>(std::make_unique<ColumnKernel>(p));
  return PanelKernel::Make(ctx, p, Present(in, kBias));
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
