// MESSAGE RIGHTS: which roles may send which message to this process: the one table of it. FrameGuard asks it
// for every message that arrives from another process, whichever actor it is for, and refuses a message that
// stands in no row: a new message that crosses processes needs a row here. What depends on more than the type
// (which administration, under which name) is asked by the actor that is told, with the functions below.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "actors/peers/peer_identities.hpp"
#include "proto/admin.pb.h"
#include "proto/cluster.pb.h"
#include "security/identity.hpp"

namespace troupe::actors {

// `types`: the registered names of a message's parts, with '+' between them, as they travel:
// "troupe.proto.JoinRequest+troupe.NodeController". PermissionDenied with the roles that may; for messages
// that no other process may send, InvalidArgument. `has_sender`: it names the actor that sent it.
[[nodiscard]] absl::Status CheckMessage(std::string_view types, security::Roles from, bool has_sender);
// CAF's own question to a new peer, which is sent to an actor by name; all others go to numbered actors.
[[nodiscard]] bool IsForNamedActor(std::string_view types);

// Whether the peer may ask this of the manager. PermissionDenied names what was asked and the role that may.
[[nodiscard]] absl::Status CheckAdmin(const proto::AdminRequest& request, const Peer& peer);
// Whether the peer may take part as the member `name`: its certificate names that member, and its role.
[[nodiscard]] absl::Status CheckMember(const Peer& peer, const std::string& name, proto::MemberKind kind);
// Whether the peer may speak for the member `name`.
[[nodiscard]] absl::Status CheckMemberName(const Peer& peer, const std::string& name);
// Whether the peer may offer actors with this interface: a node's certificate does not make a manager.
[[nodiscard]] absl::Status CheckInterface(const std::set<std::string>& interface, const Peer& peer);

}  // namespace troupe::actors
