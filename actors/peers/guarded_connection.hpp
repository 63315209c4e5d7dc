// GUARDED CONNECTIONS: CAF's connections between processes with a FrameGuard in front of each. The bytes are
// judged as they are read, before CAF's broker sees them: no further copy, no further thread. A large payload
// is gathered in steps, so that what is allocated is at most twice what has arrived. Over TCP they are
// encrypted, and both ends authenticated, when this process has credentials.
#pragma once

#include <caf/actor_control_block.hpp>
#include <caf/actor_system.hpp>
#include <caf/io/fwd.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "actors/peers/dial.hpp"
#include "actors/peers/peer_network.hpp"

namespace troupe::actors {

// A connection that this process has dialled, for the broker (`Greeter`). Any thread.
caf::io::scribe_ptr GuardedScribe(caf::actor_system& system, const PeerNetwork& network, Dialled dialled);

// Publishes `actor` at the port of `host` (0: chosen) and answers the port. Unavailable with CAF's reason.
absl::StatusOr<std::uint16_t> ListenGuarded(caf::actor_system& system, const PeerNetwork& network,
                                            caf::strong_actor_ptr actor, std::set<std::string> interface,
                                            const std::string& host, std::uint16_t port);

}  // namespace troupe::actors
