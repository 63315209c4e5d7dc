// The measures of late binding on a node's operations port (docs/http.md lists them).
#pragma once

#include "actors/daemon/gauges.hpp"
#include "proto/admin.pb.h"

namespace troupe::actors {

void ShowSwaps(const proto::NodeDescription& node, Gauges& gauges);

}  // namespace troupe::actors
