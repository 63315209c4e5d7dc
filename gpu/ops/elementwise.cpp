#include "gpu/ops/families.hpp"

namespace troupe::gpu {

std::span<const Operator> ElementwiseOperators() { return {}; }

}  // namespace troupe::gpu
