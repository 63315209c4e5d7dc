// CACHE: owns what this node holds of models: its disk and its host region.
// Asked by:  NODE CONTROLLER (AdoptModel, DisownModel).   Asks: CLUSTER MANAGER (FetchObject: bytes of
// models). Decides with node::CacheTable; disk, packing and the region are behind the ModelRepository seam,
// off its thread. Losing it loses no data: objects on disk are content-addressed and found again by digest.
#pragma once

#include "actors/interfaces/interface.hpp"
#include "proto/cluster.pb.h"
#include "proto/local.pb.h"

namespace troupe::actors {

using CacheActor = Interface<Asks<proto::AdoptModel, proto::HostModel>, Hears<proto::DisownModel>>;

}  // namespace troupe::actors
