// One answer about SLOs and requests out of what several gateways describe, and how members order by SLO.
#pragma once

#include <string>

#include "proto/admin.pb.h"
#include "proto/slo.pb.h"

namespace troupe::cluster {

// Adds the alpha of a gateway or node. It is 0 where functions are not ordered by their SLOs; then nothing is added.
void AddAlpha(const std::string& member, double alpha, proto::AdminReply& reply);
// Adds the counts of a gateway to those in `reply`, which stay in the order of names. Of `key` only; an empty name: every
// function, an empty version: every version.
void AddSlos(const proto::GatewayDescription& gateway, const proto::FunctionKey& key,
             proto::AdminReply& reply);
// Adds the counts to the functions that `reply` lists.
void AddSlosToFunctions(const proto::GatewayDescription& gateway, proto::AdminReply& reply);
// Adds timelines of all gateways together as many as one gives: with the `id` that was asked for the first to begin first,
// without one the slowest first.
void AddTimelines(const proto::GatewayDescription& gateway, const std::string& id, proto::AdminReply& reply);

}  // namespace troupe::cluster
