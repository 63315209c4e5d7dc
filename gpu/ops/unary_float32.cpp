// Unary functions on FP32 through the C library.
#include <algorithm>
#include <cmath>

#include "gpu/ops/activation.hpp"

#define TROUPE_UNARY_TYPE float
#include "gpu/ops/unary_scalar.inl"

namespace troupe::gpu {

RowFunction FindFloat32Row(std::string_view op) {
  return Find(op);
}

}  // namespace troupe::gpu
