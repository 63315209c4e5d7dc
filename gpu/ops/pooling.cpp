#include "gpu/ops/families.hpp"

namespace troupe::gpu {

std::span<const Operator> PoolingOperators() {
  return {};
}

}  // namespace troupe::gpu
