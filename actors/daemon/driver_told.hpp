// What the driver of real GPUs tells a node of them.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "actors/daemon/config.hpp"
#include "gpu/nvml/management.hpp"

namespace troupe::actors {

struct DriverTold {
  std::string
      topology;  // for node/scheduling/topology.hpp: the driver's where `auto` asks for it, else the option's
  std::shared_ptr<gpu::GpuWatch> watch;  // null: virtual GPUs, or a driver that tells nothing
};
// FailedPrecondition when the topology is asked for and there is no driver to tell it; without news of its
// GPUs' health a node goes on, and says so.
[[nodiscard]] absl::StatusOr<DriverTold> AskDriver(const DaemonConfig& config);

}  // namespace troupe::actors
