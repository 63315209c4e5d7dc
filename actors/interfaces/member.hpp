// MEMBER: one member's session with the cluster manager. Contract: actors/member/member.hpp.
#pragma once

#include "actors/interfaces/interface.hpp"
#include "proto/cluster.pb.h"

namespace troupe::actors {

// LeaveRequest: tell the manager that the member leaves in peace, and end.
// JoinRequest:  its subject has missed an update: ask the manager for what changed since `known_revision`.
using MemberActor = Interface<Hears<proto::LeaveRequest>, Hears<proto::JoinRequest>>;

}  // namespace troupe::actors
