// CACHE: moves the bytes of models: from other nodes and the manager to this node's disk, from there into its host
// region. The NODE CONTROLLER asks it (FetchModel, PlaceModel, DropModel), and decides what moves (node::CacheTable);
// it asks the CLUSTER MANAGER (LocateModel, DigestRange, FetchObject) and the NODE CONTROLLERs of other nodes
// (FetchObject: bytes of models), which hand that on to their caches. Disk and region are behind the ModelRepository
// seam, off its thread, so that the move of one model never delays another's. FetchModel brings the model's
// objects to the disk, unless they are there; UNAVAILABLE: the manager is away. PlaceModel places what the
// disk has in the region; DATA_LOSS, NOT_FOUND: the disk does not have it (any more), fetch it again;
// RESOURCE_EXHAUSTED: no room in one piece. DropModel frees its place: it has no reader, and the next model
// finds the room. PullImage brings the image of a state from the node that gave it up, or is its home; SendImageCopy
// tells another node of an image that it is to have a copy of. Losing the cache loses no data: objects on disk are content-addressed and found again by
// digest.
#pragma once

#include "actors/interfaces/interface.hpp"
#include "proto/cluster.pb.h"
#include "proto/local.pb.h"

namespace troupe::actors {

using CacheActor =
    Interface<Asks<proto::FetchModel, proto::HostModel>, Asks<proto::PlaceModel, proto::HostModel>,
              Hears<proto::DropModel>, Asks<proto::FetchObject, proto::FetchReply>,
              Asks<proto::PullImage, proto::PulledImage>, Asks<proto::SendImageCopy, proto::CopiedImage>,
              Hears<proto::ReleaseFetched>>;

}  // namespace troupe::actors
