#include "gpu/ops/families.hpp"

namespace troupe::gpu {

std::span<const Operator> QuantizationOperators() { return {}; }

}  // namespace troupe::gpu
