// What the driver of real GPUs tells a node of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/daemon/config.hpp"
#include "gpu/nvml/management.hpp"

namespace troupe::actors {

struct DriverTold {
  std::string
      topology;  // for node/scheduling/topology.hpp: the driver's where `auto` asks for it, else the option's
  std::vector<std::string> kinds;  // of each GPU: the option's, else the driver's names, else the device's
  std::shared_ptr<gpu::GpuWatch> watch;  // null: virtual GPUs, or a driver that tells nothing
};
// FailedPrecondition when the option `topology` is `auto` and no driver can be asked. A node whose driver reports
// nothing about the health of its GPUs starts all the same, and logs a warning.
[[nodiscard]] absl::StatusOr<DriverTold> AskDriver(const DaemonConfig& config);

}  // namespace troupe::actors
