// MEMBER: one member's tie to the cluster manager: finds it, joins, beats, joins again when it must.
// Speaks for: a NODE CONTROLLER or a ROUTER (DescribeMember before each beat; MemberJoined after each join).
// Asks:       CLUSTER MANAGER (JoinRequest, Heartbeat).
//
//   seeking -> joining -> joined -> seeking (the manager went away) | joining (the manager forgot us)
//
// Losing it loses no data: its member goes silent and counts as dead until it joins again.
#pragma once

#include <caf/actor_system.hpp>
#include <string>

#include "actors/interfaces/cluster_manager.hpp"
#include "actors/seams/peer_directory.hpp"
#include "base/units.hpp"

namespace troupe::actors {

// Hears LeaveRequest: tells the manager that the member leaves in peace, and ends.
using MemberActor = Interface<Hears<proto::LeaveRequest>>;

struct MemberOptions {
  std::string manager;         // address
  proto::MemberRecord record;  // what is said at each join; the GPUs come from the actor that it speaks for
  Duration heartbeat = std::chrono::milliseconds(100);  // until the manager names another
  Duration join_timeout = std::chrono::seconds(5);
  Duration rejoin_after = std::chrono::milliseconds(300);
};

// `directory` outlives the actor.
MemberActor SpawnNodeMember(caf::actor_system& system, MemberOptions options, NodeControllerActor node,
                            PeerDirectory& directory);
MemberActor SpawnGatewayMember(caf::actor_system& system, MemberOptions options, RouterActor router,
                               PeerDirectory& directory);

}  // namespace troupe::actors
