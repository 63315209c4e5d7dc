// Matrix products in FP64, which oneDNN does not have.
#pragma once

#include <vector>

#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

// out = alpha * A B + beta * C, for each matrix of a batch. A is [m, k] and B [k, n] with the strides given.
struct DoubleProduct {
  std::int64_t m = 1, k = 1, n = 1;
  std::int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0;
  // Where each matrix of the batch begins in A and in B, in elements; the results follow one another.
  std::vector<std::int64_t> a_begin = {0}, b_begin = {0};
  double alpha = 1;
  // Input 2 is added with this factor; its strides are 0 where it is stretched.
  double beta = 0;
  std::int64_t c_row = 0, c_column = 0;
};

// Inputs A, B and, where beta is not 0, C.
[[nodiscard]] Made MakeDoubleProduct(DoubleProduct product);

}  // namespace troupe::gpu
