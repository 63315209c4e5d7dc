#include "gpu/ops/families.hpp"

namespace troupe::gpu {

std::span<const Operator> NormalizationOperators() {
  return {};
}

}  // namespace troupe::gpu
