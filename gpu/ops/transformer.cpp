#include "gpu/ops/families.hpp"

namespace troupe::gpu {

std::span<const Operator> TransformerOperators() { return {}; }

}  // namespace troupe::gpu
