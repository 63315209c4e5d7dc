// CAF's settings, from our configuration alone: CAF would also read a file from the working directory,
// silently.
#pragma once

#include <caf/actor_system_config.hpp>

#include "actors/daemon/config.hpp"

namespace troupe::actors {

// Registers our messages and loads the middleman, too. Before the actor system is made.
void ApplyCafSettings(const DaemonConfig& config, caf::actor_system_config& out);

}  // namespace troupe::actors
