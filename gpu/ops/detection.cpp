#include "gpu/ops/families.hpp"

namespace troupe::gpu {

std::span<const Operator> DetectionOperators() { return {}; }

}  // namespace troupe::gpu
