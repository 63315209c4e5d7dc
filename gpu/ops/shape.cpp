#include "gpu/ops/families.hpp"

namespace troupe::gpu {

std::span<const Operator> ShapeOperators() { return {}; }

}  // namespace troupe::gpu
