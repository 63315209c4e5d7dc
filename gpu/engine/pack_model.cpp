#include "gpu/engine/plan.hpp"
#include "gpu/ops/layout.hpp"

namespace troupe::gpu {

std::string PackTarget() {
  return DeviceTarget();
}

}  // namespace troupe::gpu
