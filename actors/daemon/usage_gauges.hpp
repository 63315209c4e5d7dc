// The measures of metering on a node's operations port (docs/usage.md lists them).
#pragma once

#include "actors/daemon/gauges.hpp"
#include "proto/admin.pb.h"

namespace troupe::actors {

void ShowUsage(const proto::NodeDescription& node, Gauges& gauges);

}  // namespace troupe::actors
