// A matrix product as oneDNN's matmul: what MatMul, Gemm and their fused forms have in common.
#pragma once

#include "gpu/ops/convert.hpp"
#include "gpu/ops/dnnl_program.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

// One product as oneDNN sees it: dimensions of equal rank, matrices last.
struct Multiplication {
  dnnl::memory::desc a;
  dnnl::memory::desc b;  // how row-major weights look (transposition is a matter of strides)
  Shape b_dims;
  dnnl::memory::desc out;
  float scale = 1;
  dnnl::memory::desc bias;    // [1, N], added before the scale; empty: none
  dnnl::memory::desc addend;  // added by a post-operation, after the scale; empty: none
  float after_addend = 1;     // factor of the sum
};

// A kernel over inputs A, B and, where the product has a bias or an addend, C; only B may be packed. oneDNN's
// exceptions are the caller's to guard (GuardDnnl).
[[nodiscard]] Made MakeProduct(const StepContext& ctx, const Multiplication& product, Infos in);
// The constant matrix B in the layout that the product's primitive wants.
[[nodiscard]] absl::StatusOr<PackedWeight> PackProduct(const StepContext& ctx, const Multiplication& product,
                                                       const ValueInfo& weights);

// What `make` makes of a product that is not empty and whose sums have no terms, as the inner dimension is 0: zeros, with all that
// the operator does to a product. oneDNN refuses that, so it multiplies one row and one column of zeros, which lie in the scratch
// memory.
[[nodiscard]] Made MakeOfNoTerms(MakeFunction make, const StepContext& ctx, Infos in, Infos out);

}  // namespace troupe::gpu
