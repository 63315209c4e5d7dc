// The measures of SLOs on a gateway's page of metrics (docs/http.md lists them).
#pragma once

#include "actors/daemon/gauges.hpp"
#include "proto/slo.pb.h"

namespace troupe::actors {

void ShowSlos(const proto::GatewayDescription& gateway, Gauges& gauges);

}  // namespace troupe::actors
