// DIAL: a connection to where another process has published an actor, made here and then given to CAF: over
// a Unix socket for a loopback address (local_socket.hpp), else over TCP, and there through TLS when this
// process has credentials.
//
// CAF's own connect blocks: a connection that hangs (a full backlog, a black hole) would hold up all others
// of the process for seconds. To try with a socket of our own first, and to let CAF connect when a process
// listens, does not help: a connection that ends at once and the one after it get the same number at the
// other end, where CAF 0.17 may clean up the first one once the second has begun, and so break that.
#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "actors/peers/peer_identities.hpp"
#include "actors/peers/peer_transport.hpp"
#include "base/units.hpp"
#include "security/credentials.hpp"
#include "transport/memory_file.hpp"

namespace troupe::actors {

struct Dialled {
  transport::UniqueFd socket;
  PeerTransport transport;
  std::shared_ptr<const Peer> peer;
  security::ShownCertificate certificate;  // none: it was not asked for one
};
struct DialLimits {
  Duration connect;
  Duration greet;  // of TLS
};
// UNAVAILABLE with the reason; PermissionDenied when another user's process is there, Unauthenticated when
// the other end's certificate is refused. Blocks for at most the sum of `limits` (name look-up excepted).
// `credentials`: for TCP; null: plain.
absl::StatusOr<Dialled> Dial(const std::string& host, std::uint16_t port, const DialLimits& limits,
                             const security::Credentials* credentials);

// Takes (connect_atom, scribe_ptr, port of the other end), and answers (node_id, strong_actor_ptr, interface)
// once the other end has greeted; null: nothing is published there. Never, when the other end says nothing.
caf::actor Greeter(caf::actor_system& system);

}  // namespace troupe::actors
