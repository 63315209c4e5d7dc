#include "gpu/ops/families.hpp"

namespace troupe::gpu {

std::span<const Operator> DataMovementOperators() { return {}; }

}  // namespace troupe::gpu
