#include "gpu/ops/families.hpp"

namespace troupe::gpu {

std::span<const Operator> ReductionOperators() { return {}; }

}  // namespace troupe::gpu
