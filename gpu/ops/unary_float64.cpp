// Unary functions on FP64 through the C library.
#include <algorithm>
#include <cmath>

#include "gpu/ops/activation.hpp"

#define TROUPE_UNARY_TYPE double
#include "gpu/ops/unary_scalar.inl"

namespace troupe::gpu {

RowFunction FindFloat64Row(std::string_view op) {
  return Find(op);
}

}  // namespace troupe::gpu
