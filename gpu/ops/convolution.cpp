#include "gpu/ops/families.hpp"

namespace troupe::gpu {

std::span<const Operator> ConvolutionOperators() {
  return {};
}

}  // namespace troupe::gpu
