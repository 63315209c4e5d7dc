// MatMul and Gemm by oneDNN's matmul; in FP64 by loops of our own.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/dnnl_program.hpp"
#include "gpu/ops/double_product.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/product_program.hpp"

namespace troupe::gpu {
namespace {

using dnnl::memory;

constexpr TypeSet kTypes = kFloatTypes;
// Of a batch in FP64, whose matrices are found by a table.
constexpr std::int64_t kMostMatrices = std::int64_t{1} << 24;

// --- MatMul ---

struct MatMulShapes {
  Shape batch_a, batch_b, batch, out;
  std::int64_t m = 1, k = 1, n = 1;
};

absl::StatusOr<MatMulShapes> ReadMatMul(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 3, kTypes));
  const Shape& a = in[0].shape;
  const Shape& b = in[1].shape;
  const std::string both = absl::StrCat("inputs ", FormatShape(a), " and ", FormatShape(b));
  if (in[0].type != in[1].type) return ctx.Error("the inputs have different types");
  if (a.empty() || b.empty())
    return ctx.Error(absl::StrCat(both, ": a scalar cannot be multiplied as a matrix"));
  if (a.size() > 10 || b.size() > 10) return ctx.Error(absl::StrCat(both, ": more than 10 dimensions"));
  MatMulShapes shapes;
  shapes.k = a.back();
  if (a.size() > 1) {
    shapes.m = a[a.size() - 2];
    shapes.batch_a.assign(a.begin(), a.end() - 2);
  }
  if (b.size() > 1) {
    shapes.n = b.back();
    shapes.batch_b.assign(b.begin(), b.end() - 2);
  }
  const std::int64_t k = b.size() > 1 ? b[b.size() - 2] : b[0];
  if (k != shapes.k)
    return ctx.Error(absl::StrCat(both, ": inner dimensions ", shapes.k, " and ", k, " differ"));
  auto batch = BroadcastShapes(shapes.batch_a, shapes.batch_b);
  if (!batch.ok()) return ctx.Error(std::string(batch.status().message()));
  shapes.batch = *std::move(batch);
  shapes.out = shapes.batch;
  if (a.size() > 1) shapes.out.push_back(shapes.m);
  if (b.size() > 1) shapes.out.push_back(shapes.n);
  // A third input is the bias that the importer fused.
  if (Present(in, 2) && (in[2].shape != Shape{shapes.n} || in[2].type != in[0].type)) {
    return ctx.Error(
        absl::StrCat("the bias has shape ", FormatShape(in[2].shape), ", expected [", shapes.n, "]"));
  }
  return shapes;
}

Inferred InferMatMul(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(MatMulShapes shapes, ReadMatMul(ctx, in));
  return OneValue(ctx, in[0].type, std::move(shapes.out));
}

Shape Join(Shape batch, std::int64_t rows, std::int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

Shape Padded(const Shape& batch, std::size_t rank) {
  Shape padded(rank - batch.size(), 1);
  padded.insert(padded.end(), batch.begin(), batch.end());
  return padded;
}

// The simplest form: one matrix where B is shared by the whole batch, one batch dimension where both have the
// same.
Multiplication MatMulProduct(const MatMulShapes& s, bool bias) {
  Shape a, b, batch;
  std::int64_t rows = s.m;
  if (Product(s.batch_b) == 1) {
    rows *= Product(s.batch);
  } else if (s.batch_a == s.batch_b) {
    a = b = batch = {Product(s.batch)};
  } else {
    a = Padded(s.batch_a, s.batch.size());
    b = Padded(s.batch_b, s.batch.size());
    batch = s.batch;
  }
  Multiplication product;
  product.a = RowMajorDesc(Join(a, rows, s.k));
  product.b_dims = Join(b, s.k, s.n);
  product.b = RowMajorDesc(product.b_dims);
  product.out = RowMajorDesc(Join(batch, rows, s.n));
  if (bias) product.bias = RowMajorDesc(Join(Shape(batch.size(), 1), 1, s.n));
  return product;
}

Made MakeMatMul(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const MatMulShapes shapes, ReadMatMul(ctx, in));
  if (out[0].elements() == 0) return EmptyKernel();
  if (shapes.k == 0) return MakeOfNoTerms(&MakeMatMul, ctx, in, out);
  return GuardDnnl(ctx, [&] { return MakeProduct(ctx, MatMulProduct(shapes, Present(in, 2)), in); });
}

// Where each matrix of `batch` begins in a tensor of `own` batch dimensions, which broadcast to it.
std::vector<std::int64_t> BatchBegins(const Shape& batch, const Shape& own, std::int64_t matrix) {
  const Shape strides = RowMajorStrides(own);
  std::vector<std::int64_t> begins(static_cast<std::size_t>(Product(batch)), 0);
  for (std::size_t i = 0; i < begins.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t d = batch.size(); d-- > 0; rest /= batch[d]) {
      const std::size_t lead = batch.size() - own.size();
      if (d >= lead && own[d - lead] != 1) begins[i] += rest % batch[d] * strides[d - lead] * matrix;
    }
  }
  return begins;
}

Made MakeDoubleMatMul(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const MatMulShapes s, ReadMatMul(ctx, in));
  if (out[0].elements() == 0) return EmptyKernel();
  if (Product(s.batch) > kMostMatrices) return ctx.Error("more than 2^24 matrices in FP64");
  DoubleProduct product{
      .m = s.m, .k = s.k, .n = s.n, .a_row = s.k, .a_column = 1, .b_row = s.n, .b_column = 1};
  product.a_begin = BatchBegins(s.batch, s.batch_a, s.m * s.k);
  product.b_begin = BatchBegins(s.batch, s.batch_b, s.k * s.n);
  product.beta = Present(in, 2) ? 1 : 0;
  product.c_column = 1;
  return MakeDoubleProduct(std::move(product));
}

absl::StatusOr<PackedWeight> PackMatMul(const StepContext& ctx, Infos in, int index) {
  TROUPE_ASSIGN_OR_RETURN(const MatMulShapes shapes, ReadMatMul(ctx, in));
  const bool matrix = in[1].shape.size() == 2 && in[0].type == proto::FP32;
  if (index != 1 || !matrix || Product(shapes.out) * shapes.k == 0) return PackedWeight{};
  return GuardDnnl(ctx, [&] { return PackProduct(ctx, MatMulProduct(shapes, Present(in, 2)), in[1]); });
}

// --- Gemm ---

struct GemmShapes {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, k = 0, n = 0;
};

absl::StatusOr<GemmShapes> ReadGemm(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 3, kTypes));
  const Shape& a = in[0].shape;
  const Shape& b = in[1].shape;
  if (a.size() != 2 || b.size() != 2) {
    return ctx.Error(absl::StrCat("inputs ", FormatShape(a), " and ", FormatShape(b), " must be matrices"));
  }
  GemmShapes shapes;
  shapes.transpose_a = ctx.Int("transA", 0) != 0;
  shapes.transpose_b = ctx.Int("transB", 0) != 0;
  shapes.m = a[shapes.transpose_a ? 1 : 0];
  shapes.k = a[shapes.transpose_a ? 0 : 1];
  shapes.n = b[shapes.transpose_b ? 0 : 1];
  if (b[shapes.transpose_b ? 1 : 0] != shapes.k) {
    return ctx.Error(absl::StrCat("inputs ", FormatShape(a), " and ", FormatShape(b), " do not multiply"));
  }
  if (Present(in, 2)) {
    const auto sum = BroadcastShapes(Shape{shapes.m, shapes.n}, in[2].shape);
    if (!sum.ok() || *sum != Shape{shapes.m, shapes.n}) {
      return ctx.Error(absl::StrCat("C ", FormatShape(in[2].shape), " does not broadcast to [", shapes.m, ",",
                                    shapes.n, "]"));
    }
  }
  for (const ValueInfo& info : in) {
    if (!info.absent() && info.type != in[0].type) return ctx.Error("the inputs have different types");
  }
  return shapes;
}

Inferred InferGemm(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const GemmShapes shapes, ReadGemm(ctx, in));
  return OneValue(ctx, in[0].type, {shapes.m, shapes.n});
}

memory::desc Matrix(std::int64_t rows, std::int64_t columns, bool transposed) {
  const int order[2] = {transposed ? 1 : 0, transposed ? 0 : 1};
  return PermutedDesc(Shape{rows, columns}, order);
}

// alpha * AB + beta * C. A row added with both factors 1 is a bias; else beta * (alpha / beta * AB + C).
Multiplication GemmProduct(const StepContext& ctx, const GemmShapes& s, Infos in) {
  Multiplication product;
  const float alpha = ctx.Float("alpha", 1);
  const float beta = ctx.Float("beta", 1);
  product.a = Matrix(s.m, s.k, s.transpose_a);
  product.b_dims = {s.k, s.n};
  product.b = Matrix(s.k, s.n, s.transpose_b);
  product.out = RowMajorDesc(Shape{s.m, s.n});
  product.scale = alpha;
  if (!Present(in, 2) || beta == 0) return product;
  const Shape c = Padded(in[2].shape, 2);
  if (alpha == 1 && beta == 1 && c == Shape{1, s.n}) {
    product.bias = RowMajorDesc(c);
    return product;
  }
  product.scale = alpha / beta;
  product.addend = RowMajorDesc(c);
  product.after_addend = beta;
  return product;
}

Made MakeGemm(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const GemmShapes shapes, ReadGemm(ctx, in));
  if (out[0].elements() == 0) return EmptyKernel();
  if (shapes.k == 0) return MakeOfNoTerms(&MakeGemm, ctx, in, out);
  return GuardDnnl(ctx, [&] { return MakeProduct(ctx, GemmProduct(ctx, shapes, in), in); });
}

Made MakeDoubleGemm(const StepContext& ctx, Infos in, Infos out) {
  TROUPE_ASSIGN_OR_RETURN(const GemmShapes s, ReadGemm(ctx, in));
  if (out[0].elements() == 0) return EmptyKernel();
  DoubleProduct product{.m = s.m, .k = s.k, .n = s.n};
  product.a_row = s.transpose_a ? 1 : s.k;
  product.a_column = s.transpose_a ? s.m : 1;
  product.b_row = s.transpose_b ? 1 : s.n;
  product.b_column = s.transpose_b ? s.k : 1;
  product.alpha = ctx.Float("alpha", 1);
  if (Present(in, 2)) {
    const Shape c = Padded(in[2].shape, 2);
    product.beta = ctx.Float("beta", 1);
    product.c_row = c[0] == 1 ? 0 : c[1];
    product.c_column = c[1] == 1 ? 0 : 1;
  }
  return MakeDoubleProduct(std::move(product));
}

absl::StatusOr<PackedWeight> PackGemm(const StepContext& ctx, Infos in, int index) {
  TROUPE_ASSIGN_OR_RETURN(const GemmShapes shapes, ReadGemm(ctx, in));
  if (index != 1 || in[0].type != proto::FP32 || shapes.m * shapes.n * shapes.k == 0) return PackedWeight{};
  return GuardDnnl(ctx, [&] { return PackProduct(ctx, GemmProduct(ctx, shapes, in), in[1]); });
}

template <MakeFunction make, MakeFunction make_double>
Made InFloat(const StepContext& ctx, Infos in, Infos out) {
  if (in[0].type == proto::FP64) return make_double(ctx, in, out);
  return in[0].type == proto::FP32 ? make(ctx, in, out) : MakeWidened(make, &FloatWideType, ctx, in, out);
}

constexpr Operator kOperators[] = {
    With({.activation = true, .addend = true},
         {"MatMul", 1, kNewestOpset, InferMatMul, InFloat<MakeMatMul, MakeDoubleMatMul>, PackMatMul, kTypes}),
    With({.activation = true},
         {"Gemm", 7, kNewestOpset, InferGemm, InFloat<MakeGemm, MakeDoubleGemm>, PackGemm, kTypes}),
};

}  // namespace

std::span<const Operator> MatMulOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
