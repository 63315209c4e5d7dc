// MEMBER: one member's session with the cluster manager: finds it, joins, beats, joins again when it must.
// Speaks for: a NODE CONTROLLER or a ROUTER (DescribeMember before each beat; MemberJoined after each join).
// Asks:       CLUSTER MANAGER (JoinRequest, Heartbeat).
//
//   seeking -> joining -> joined -> seeking (the manager went away) | joining (the manager forgot us)
//
// The manager tells its subject what changes (ClusterUpdate), each change once. What the manager had told
// before a heartbeat is there by the next one, or is lost: the subject hears the revision, finds the gap, and
// has the member ask for what it has missed.
// What a member that joins has to know may be a million functions: it asks for one part after the other, and its subject
// gets the whole.
// Losing it loses no data: its member goes silent and counts as dead until it joins again.
#pragma once

#include <caf/actor_system.hpp>
#include <functional>
#include <memory>
#include <string>

#include "actors/interfaces/cluster_manager.hpp"
#include "actors/interfaces/member.hpp"
#include "actors/member/lease.hpp"
#include "actors/seams/peer_directory.hpp"
#include "base/units.hpp"

namespace troupe::actors {

struct MemberOptions {
  std::string manager;         // address
  proto::MemberRecord record;  // what is said at each join; the GPUs come from the actor that it speaks for
  Duration heartbeat = std::chrono::milliseconds(100);  // until the manager names another
  Duration join_timeout = std::chrono::seconds(5);
  Duration rejoin_after = std::chrono::milliseconds(300);
  std::shared_ptr<Lease> lease = std::make_shared<Lease>();  // shared with the actor that it speaks for
  // The cluster that it was a member of; another one refuses it. Empty: none yet. A new one is told, once.
  std::string cluster;
  std::function<void(const std::string&)> keep_cluster;  // may be empty
  // What people want to know of the session: "cluster-joined", "manager-lost", "manager-missing" (a second after
  // the last that was heard, and then ever more rarely), "join-refused" (each new reason once). May be empty.
  std::function<void(const std::string& kind, const std::string& message)> on_event;
};

// `directory` outlives the actor.
MemberActor SpawnNodeMember(caf::actor_system& system, MemberOptions options, NodeControllerActor node,
                            PeerDirectory& directory);
// `front`: where runs of other gateways can go on; empty: nowhere.
MemberActor SpawnGatewayMember(caf::actor_system& system, MemberOptions options, RouterActor router,
                               FrontActor front, PeerDirectory& directory);

}  // namespace troupe::actors
