// PROVISION ORDERS: what a node provisioner is told of an action.
#pragma once

#include "actors/seams/node_provisioner.hpp"
#include "cluster/provisioning.hpp"
#include "proto/admin.pb.h"

namespace troupe::actors {

// `status`: all members as the manager knows them.
[[nodiscard]] ProvisionOrder OrderOf(const cluster::ProvisionAction& action,
                                     const proto::ClusterStatusReply& status);

}  // namespace troupe::actors
