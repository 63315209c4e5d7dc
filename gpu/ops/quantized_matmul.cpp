// MatMulInteger and QLinearMatMul: products of bytes, summed in 32 bits.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/ops/byte_product.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/quantized.hpp"

namespace troupe::gpu {
namespace {

// Shapes of a product as matrices with broadcast batches.
struct Product2 {
  Shape out;
  std::int64_t rows, depth, columns;
  std::vector<std::int64_t> batch_a, batch_b;  // matrix number of each input for every batch of the output

  // Where the matrices of batch `i` begin.
  [[nodiscard]] std::int64_t a_begin(std::size_t i) const { return batch_a[i] * rows * depth; }
  [[nodiscard]] std::int64_t b_begin(std::size_t i) const { return batch_b[i] * depth * columns; }
};

void NumberBatches(const Shape& out_batch, const Shape& own, std::vector<std::int64_t>& numbers) {
  const std::int64_t count = Product(out_batch);
  const Shape strides = RowMajorStrides(own);
  const Shape out_strides = RowMajorStrides(out_batch);
  const std::size_t lead = out_batch.size() - own.size();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t number = 0;
    for (std::size_t d = 0; d < own.size(); ++d) {
      if (own[d] != 1) number += i / out_strides[lead + d] % out_batch[lead + d] * strides[d];
    }
    numbers.push_back(number);
  }
}

absl::StatusOr<Product2> ReadProduct(const StepContext& ctx, Shape a, Shape b) {
  const auto wrong = [&] {
    return ctx.Error(absl::StrCat(FormatShape(a), " times ", FormatShape(b), " does not fit"));
  };
  if (a.empty() || b.empty()) return wrong();
  const bool vector_a = a.size() == 1;
  const bool vector_b = b.size() == 1;
  if (vector_a) a.insert(a.begin(), 1);
  if (vector_b) b.push_back(1);
  Product2 p;
  p.rows = a[a.size() - 2];
  p.depth = a.back();
  p.columns = b.back();
  if (b[b.size() - 2] != p.depth) return wrong();
  const Shape own_a(a.begin(), a.end() - 2);
  const Shape own_b(b.begin(), b.end() - 2);
  auto batch = BroadcastShapes(own_a, own_b);
  if (!batch.ok()) return wrong();
  p.out = *batch;
  if (auto count = CountElements(p.out); !count.ok() || *count > (1 << 24)) return wrong();
  NumberBatches(*batch, own_a, p.batch_a);
  NumberBatches(*batch, own_b, p.batch_b);
  if (!vector_a) p.out.push_back(p.rows);
  if (!vector_b) p.out.push_back(p.columns);
  return p;
}

std::vector<std::int32_t> Zeros(In in, std::size_t index) {
  if (!Present(in, index)) return {0};
  std::vector<std::int32_t> zeros;
  const std::int64_t n = Elements(in[index]);
  for (std::int64_t i = 0; i < n; ++i) zeros.push_back(static_cast<std::int32_t>(SmallIntAt(in[index], i)));
  return zeros;
}

// A zero point or scale is one for all, or one for each row of a (column of b).
absl::Status CheckPer(const StepContext& ctx, Infos in, std::size_t index, std::int64_t count) {
  if (!Present(in, index) || in[index].elements() == 1 || in[index].shape == Shape{count})
    return absl::OkStatus();
  return ctx.Error(
      absl::StrCat("input ", index, " is ", FormatShape(in[index].shape), ", wants one or ", count));
}

// --- MatMulInteger
// ------------------------------------------------------------------------------------------------

Inferred InferMatMulInteger(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 4, kByteTypes));
  for (std::size_t i = 1; i < in.size(); ++i) TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, i, kByteTypes));
  TROUPE_ASSIGN_OR_RETURN(Product2 p, ReadProduct(ctx, in[0].shape, in[1].shape));
  TROUPE_RETURN_IF_ERROR(CheckPer(ctx, in, 2, p.rows));
  TROUPE_RETURN_IF_ERROR(CheckPer(ctx, in, 3, p.columns));
  return OneValue(ctx, proto::INT32, std::move(p.out));
}

ByteMatrices MatricesOf(const Product2& p, const ValueInfo& a, const ValueInfo& b) {
  return {p.rows, p.depth, p.columns, a.type, b.type};
}

Made MakeMatMulInteger(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(Product2 p, ReadProduct(ctx, in[0].shape, in[1].shape));
  ScratchParts parts;
  TROUPE_ASSIGN_OR_RETURN(ByteProduct made, ByteProduct::Make(ctx, MatricesOf(p, in[0], in[1]), parts));
  return MakeKernel(
      [p = std::move(p), product = std::make_shared<const ByteProduct>(std::move(made))](
          In in, Out out, std::byte* scratch) -> absl::Status {
        const std::vector<std::int32_t> zero_a = Zeros(in, 2);
        const std::vector<std::int32_t> zero_b = Zeros(in, 3);
        for (std::size_t i = 0; i < p.batch_a.size(); ++i) {
          TROUPE_RETURN_IF_ERROR(product->Run(
              in[0].data + p.a_begin(i), zero_a, in[1].data + p.b_begin(i), zero_b,
              MutableData<std::int32_t>(out[0]) + static_cast<std::int64_t>(i) * p.rows * p.columns,
              scratch));
        }
        return absl::OkStatus();
      },
      parts.size());
}

// --- QLinearMatMul: a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero
// ---------------------------------------------

Inferred InferQLinearMatMul(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 8, 8, kByteTypes));
  for (std::size_t i : {2, 3, 5, 7}) TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, i, kByteTypes));
  for (std::size_t i : {1, 4, 6}) TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, i, TypesOf({proto::FP32})));
  TROUPE_ASSIGN_OR_RETURN(Product2 p, ReadProduct(ctx, in[0].shape, in[3].shape));
  for (std::size_t i : {1, 2}) TROUPE_RETURN_IF_ERROR(CheckPer(ctx, in, i, p.rows));
  for (std::size_t i : {4, 5}) TROUPE_RETURN_IF_ERROR(CheckPer(ctx, in, i, p.columns));
  if (in[6].elements() != 1 || in[7].elements() != 1)
    return ctx.Error("the output's scale must be one number");
  return OneValue(ctx, in[7].type, std::move(p.out));
}

Made MakeQLinearMatMul(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(Product2 p, ReadProduct(ctx, in[0].shape, in[3].shape));
  ScratchParts parts;
  TROUPE_ASSIGN_OR_RETURN(ByteProduct made, ByteProduct::Make(ctx, MatricesOf(p, in[0], in[3]), parts));
  const std::uint64_t sums = parts.Add(static_cast<std::uint64_t>(p.rows * p.columns) * sizeof(std::int32_t));
  return MakeKernel(
      [p = std::move(p), sums, product = std::make_shared<const ByteProduct>(std::move(made))](
          In in, Out out, std::byte* scratch) -> absl::Status {
        const std::vector<std::int32_t> zero_a = Zeros(in, 2);
        const std::vector<std::int32_t> zero_b = Zeros(in, 5);
        const float* scale_a = Data<float>(in[1]);
        const float* scale_b = Data<float>(in[4]);
        const bool one_a = Elements(in[1]) == 1;
        const bool one_b = Elements(in[4]) == 1;
        const double scale_y = *Data<float>(in[6]);
        const std::int64_t zero_y = SmallIntAt(in[7], 0);
        auto* const made = reinterpret_cast<std::int32_t*>(scratch + sums);
        std::int64_t place = 0;
        for (std::size_t i = 0; i < p.batch_a.size(); ++i) {
          TROUPE_RETURN_IF_ERROR(product->Run(in[0].data + p.a_begin(i), zero_a, in[3].data + p.b_begin(i),
                                              zero_b, made, scratch));
          for (std::int64_t e = 0; e < p.rows * p.columns; ++e) {
            const double scale =
                static_cast<double>(scale_a[one_a ? 0 : e / p.columns]) * scale_b[one_b ? 0 : e % p.columns];
            QuantizeTo(out[0].type, out[0].data, place++, made[e] * scale / scale_y, zero_y);
          }
        }
        return absl::OkStatus();
      },
      parts.size());
}

constexpr Operator kOperators[] = {
    {.name = "MatMulInteger",
     .min_opset = 10,
     .max_opset = kNewestOpset,
     .infer = &InferMatMulInteger,
     .make = &MakeMatMulInteger,
     .types = kByteTypes},
    {.name = "QLinearMatMul",
     .min_opset = 10,
     .max_opset = kNewestOpset,
     .infer = &InferQLinearMatMul,
     .make = &MakeQLinearMatMul,
     .types = kByteTypes},
};

}  // namespace

std::span<const Operator> QuantizedMatMulOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
