// TLS GREETING: the handshake of TLS on a connection that was accepted, in CAF's event loop: the connection
// is given to the broker when it is over, and closed when it fails. How many there are, and for how long, is
// bounded by the tickets of PeerConnections.
#pragma once

#include <caf/io/network/event_handler.hpp>
#include <functional>
#include <memory>
#include <string>

#include "actors/peers/peer_connections.hpp"
#include "actors/peers/peer_transport.hpp"
#include "security/credentials.hpp"
#include "transport/memory_file.hpp"

namespace troupe::actors {

// On the event loop's thread only. Its owner keeps it until `over` is called, or until the loop has ended.
class TlsGreeting final : public caf::io::network::event_handler {
 public:
  struct Greeted {
    transport::UniqueFd socket;
    security::SslPtr tls;
    PeerConnections::Ticket ticket;
    absl::Status status;  // as TlsAcceptance; Cancelled after Cancel
  };
  // `over` is called once, from the loop itself: not in the middle of an event, when the socket is still
  // watched. It may destroy this.
  TlsGreeting(caf::io::network::default_multiplexer& loop, transport::UniqueFd socket,
              const security::Snapshot& credentials, PeerConnections::Ticket ticket,
              std::function<void(TlsGreeting*, Greeted)> over);

  void Begin() { Step(); }
  // The listening end goes away.
  void Cancel() { End(absl::CancelledError("the port is closed")); }

  void handle_event(caf::io::network::operation what) override;
  void removed_from_loop(caf::io::network::operation) override {}
  void graceful_shutdown() override { Cancel(); }

 private:
  void Step();
  // Waits until the other end has read why it is refused: a connection that is closed with bytes unread may
  // take away what was sent before.
  void Linger();
  void Drain();
  void Want(bool read, bool write);
  void End(absl::Status status);

  TlsAcceptance acceptance_;
  PeerConnections::Ticket ticket_;  // destroyed before the descriptor is closed
  std::function<void(TlsGreeting*, Greeted)> over_;
  bool lingering_ = false;
  bool ended_ = false;
};

}  // namespace troupe::actors
