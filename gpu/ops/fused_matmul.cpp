// com.microsoft.FusedMatMul: alpha * A B, where A and B may be transposed: their matrices, or their first dimension
// against the batch. Transposition is a matter of strides; nothing is copied.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/double_product.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/product_program.hpp"

namespace troupe::gpu {
namespace {

using dnnl::memory;

constexpr std::size_t kMostDimensions = 10;
// Of a batch in FP64, whose matrices are found by a table.
constexpr std::int64_t kMostMatrices = std::int64_t{1} << 24;

// An operand as [batch..., rows, columns] with the strides that its transpositions give.
struct Operand {
  Shape dims;
  Shape strides;
  bool vector = false;  // of one dimension in the file
  bool plain = true;    // row-major as it stands

  [[nodiscard]] Shape batch() const { return {dims.begin(), dims.end() - 2}; }
};

struct FusedProduct {
  Operand a, b;
  Shape batch, out;
  std::int64_t m = 0, k = 0, n = 0;
  float alpha = 1;
};

Operand ReadOperand(const Shape& shape, bool transposed, bool batch_transposed, bool left) {
  Operand operand;
  if (shape.size() == 1) {
    operand.vector = true;
    operand.dims = left ? Shape{1, shape[0]} : Shape{shape[0], 1};
    operand.strides = left ? Shape{shape[0], 1} : Shape{1, 1};
    return operand;
  }
  Shape order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  // The first dimension becomes the matrix's rows, and the batch moves in front of it.
  if (batch_transposed && shape.size() > 2) std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
  if (transposed) std::swap(order[order.size() - 1], order[order.size() - 2]);
  operand.plain = std::ranges::is_sorted(order);
  const Shape own = RowMajorStrides(shape);
  for (std::int64_t dim : order) {
    operand.dims.push_back(shape[static_cast<std::size_t>(dim)]);
    operand.strides.push_back(own[static_cast<std::size_t>(dim)]);
  }
  return operand;
}

absl::StatusOr<FusedProduct> ReadFused(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckAttributes(ctx, {"alpha", "transA", "transB", "transBatchA", "transBatchB"}));
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 2, kFloatTypes));
  const std::string both =
      absl::StrCat("inputs ", FormatShape(in[0].shape), " and ", FormatShape(in[1].shape));
  if (in[0].type != in[1].type) return ctx.Error("the inputs have different types");
  for (std::size_t i = 0; i < 2; ++i)
    if (in[i].shape.empty() || in[i].shape.size() > kMostDimensions)
      return ctx.Error(absl::StrCat(both, " must have 1 to ", kMostDimensions, " dimensions each"));
  FusedProduct p;
  p.a = ReadOperand(in[0].shape, ctx.Int("transA", 0) != 0, ctx.Int("transBatchA", 0) != 0, true);
  p.b = ReadOperand(in[1].shape, ctx.Int("transB", 0) != 0, ctx.Int("transBatchB", 0) != 0, false);
  p.m = p.a.dims[p.a.dims.size() - 2];
  p.k = p.a.dims.back();
  p.n = p.b.dims.back();
  if (const std::int64_t k = p.b.dims[p.b.dims.size() - 2]; k != p.k)
    return ctx.Error(
        absl::StrCat(both, ", transposed as asked: inner dimensions ", p.k, " and ", k, " differ"));
  auto batch = BroadcastShapes(p.a.batch(), p.b.batch());
  if (!batch.ok()) return ctx.Error(std::string(batch.status().message()));
  p.batch = *std::move(batch);
  p.out = p.batch;
  if (!p.a.vector) p.out.push_back(p.m);
  if (!p.b.vector) p.out.push_back(p.n);
  p.alpha = ctx.Float("alpha", 1);
  return p;
}

Inferred InferFused(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(FusedProduct p, ReadFused(ctx, in));
  return OneValue(ctx, in[0].type, std::move(p.out));
}

// Dimensions of 1 in front, so that both operands have the rank of the result.
memory::desc Described(Operand operand, std::size_t rank) {
  const std::size_t lead = rank - operand.dims.size();
  operand.dims.insert(operand.dims.begin(), lead, 1);
  operand.strides.insert(operand.strides.begin(), lead, operand.strides.empty() ? 1 : operand.strides[0]);
  return {operand.dims, memory::data_type::f32, operand.strides};
}

Multiplication ProductOf(const FusedProduct& p) {
  Multiplication product;
  product.scale = p.alpha;
  const std::size_t rank = p.batch.size() + 2;
  if (p.a.plain && Product(p.b.batch()) == 1) {
    // One matrix for the whole batch.
    const std::int64_t rows = p.m * Product(p.batch);
    product.a = RowMajorDesc(Shape{rows, p.k});
    const std::size_t size = p.b.dims.size();
    product.b_dims = {p.k, p.n};
    product.b = memory::desc(product.b_dims, memory::data_type::f32,
                             Shape{p.b.strides[size - 2], p.b.strides[size - 1]});
    product.out = RowMajorDesc(Shape{rows, p.n});
    return product;
  }
  product.a = Described(p.a, rank);
  product.b = Described(p.b, rank);
  product.b_dims = product.b.dims();
  Shape out = p.batch;
  out.insert(out.end(), {p.m, p.n});
  product.out = RowMajorDesc(out);
  return product;
}

Made MakeFused(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const FusedProduct p, ReadFused(ctx, in));
  if (out[0].elements() == 0) return EmptyKernel();
  if (p.k == 0) return MakeOfNoTerms(&MakeFused, ctx, in, out);
  return GuardDnnl(ctx, [&] { return MakeProduct(ctx, ProductOf(p), in); });
}

// Where each matrix of the batch begins in an operand.
std::vector<std::int64_t> Begins(const Shape& batch, const Operand& operand) {
  std::vector<std::int64_t> begins(static_cast<std::size_t>(Product(batch)), 0);
  const std::size_t own = operand.dims.size() - 2;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t d = batch.size(); d-- > 0; rest /= batch[d]) {
      const std::size_t lead = batch.size() - own;
      if (d >= lead && operand.dims[d - lead] != 1) begins[i] += rest % batch[d] * operand.strides[d - lead];
    }
  }
  return begins;
}

Made MakeDoubleFused(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const FusedProduct p, ReadFused(ctx, in));
  if (out[0].elements() == 0) return EmptyKernel();
  if (Product(p.batch) > kMostMatrices) return ctx.Error("more than 2^24 matrices in FP64");
  DoubleProduct product{.m = p.m, .k = p.k, .n = p.n};
  product.a_row = p.a.strides[p.a.strides.size() - 2];
  product.a_column = p.a.strides.back();
  product.b_row = p.b.strides[p.b.strides.size() - 2];
  product.b_column = p.b.strides.back();
  product.a_begin = Begins(p.batch, p.a);
  product.b_begin = Begins(p.batch, p.b);
  product.alpha = p.alpha;
  return MakeDoubleProduct(std::move(product));
}

Made MakeFusedOf(const StepContext& ctx, Infos in, Infos out) {
  if (in[0].type == proto::FP64) return MakeDoubleFused(ctx, in, out);
  return in[0].type == proto::FP32 ? MakeFused(ctx, in, out)
                                   : MakeWidened(&MakeFused, &FloatWideType, ctx, in, out);
}

absl::StatusOr<PackedWeight> PackFused(const StepContext& ctx, Infos in, int index) {
  TROUPE_ASSIGN_OR_RETURN(const FusedProduct p, ReadFused(ctx, in));
  const bool matrix = in[1].shape.size() == 2 && p.a.plain && in[0].type == proto::FP32;
  if (index != 1 || !matrix || Product(p.out) * p.k == 0) return PackedWeight{};
  return GuardDnnl(ctx, [&] { return PackProduct(ctx, ProductOf(p), in[1]); });
}

constexpr Operator kOperators[] = {
    With({.activation = true},
         {"com.microsoft.FusedMatMul", 1, kNewestOpset, InferFused, MakeFusedOf, PackFused, kFloatTypes}),
};

}  // namespace

std::span<const Operator> FusedMatMulOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
