// PEER WATCHER: what hears whether a peer is connected. See seams/peer_directory.hpp.
#pragma once

#include <caf/actor_control_block.hpp>

#include "actors/interfaces/interface.hpp"
#include "proto/local.pb.h"

namespace troupe::actors {

// Hears (PeerUp, handle) each time the peer is connected and PeerLost each time it is gone.
using PeerWatcherActor =
    Interface<typename caf::reacts_to<proto::PeerUp, caf::strong_actor_ptr>, Hears<proto::PeerLost>>;

}  // namespace troupe::actors
