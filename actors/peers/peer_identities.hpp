// PEER IDENTITIES: which peer is at the other end of each connection between processes, and so which peer
// sent a message. A connection knows its peer from the peer's certificate, or from the kernel where it is a
// Unix socket. CAF says of a message only which process (node id) it came from; so a process is entered here
// when its connection has ended CAF's handshake, before any message of it is read.
#pragma once

#include <caf/actor_control_block.hpp>
#include <caf/node_id.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "proto/access.pb.h"
#include "security/identity.hpp"

namespace troupe::actors {

inline constexpr security::Roles kEveryRole = {security::Role::kManager, security::Role::kGateway,
                                               security::Role::kNode, security::Role::kAdmin,
                                               security::Role::kReader};

// The process at the other end of one connection. Immutable.
struct Peer {
  security::Roles roles;
  std::string name;     // in its certificate; "": it has shown none, and may call itself what it likes
  std::string serial;   // of its certificate
  std::string caller;   // "certificate/NAME", "user/UID"; "": it was not asked
  std::string address;  // "10.0.0.9:5000", or "user 1000, process 4711"

  // "'rack-3' (node, serial 1f2e...) at 10.0.0.9:5000".
  [[nodiscard]] std::string ToString() const;
};
// Of a certificate that was verified.
[[nodiscard]] Peer CertifiedPeer(const security::Identity& identity, std::string address);
// Of a Unix socket, whose other end is our own user or root; it has every role.
[[nodiscard]] Peer LocalPeerOf(int socket);
// Of a network that --insecure-network was said for: it has every role.
[[nodiscard]] Peer UnaskedPeer(std::string address);

// The peer that asked for something, for its audit line: "certificate/NAME", "user/UID"; "" without a
// request, and for this process itself.
[[nodiscard]] inline std::string CallerName(const Peer& peer) {
  return peer.caller;
}
[[nodiscard]] proto::Caller CallerOf(const Peer& peer);

// Thread-safe.
class PeerIdentities {
 public:
  explicit PeerIdentities(caf::node_id own) : own_(std::move(own)) {}

  // Keeps a process entered for as long as its connection lives.
  class Entry {
   public:
    Entry() = default;
    Entry(Entry&& other) noexcept;
    Entry& operator=(Entry&& other) noexcept;
    ~Entry();

   private:
    friend class PeerIdentities;
    std::shared_ptr<PeerIdentities> owner_;
    caf::node_id node_;
  };
  // PermissionDenied when the node id is our own, or when another connection has it under another identity:
  // the second one could speak with the first one's rights, and CAF would send it what is meant for the
  // first.
  static absl::StatusOr<Entry> Enter(const std::shared_ptr<PeerIdentities>& identities,
                                     const caf::node_id& node, std::shared_ptr<const Peer> peer);

  // The sender of a message. An actor of this process, or no sender (FrameGuard lets only actors of this
  // process send those messages without one): this process, which has every role. A process that is not
  // connected any more has no role.
  [[nodiscard]] std::shared_ptr<const Peer> Of(const caf::strong_actor_ptr& sender) const;
  [[nodiscard]] const caf::node_id& own() const { return own_; }

 private:
  struct Known {
    std::shared_ptr<const Peer> peer;
    int connections = 0;
  };
  void Leave(const caf::node_id& node);

  const caf::node_id own_;
  mutable std::mutex mutex_;
  std::unordered_map<caf::node_id, Known> known_;  // guarded by mutex_
};

// As PeerIdentities::Of; without a table (one process alone, the simulator) every sender is this process.
[[nodiscard]] std::shared_ptr<const Peer> PeerOf(const std::shared_ptr<const PeerIdentities>& identities,
                                                 const caf::strong_actor_ptr& sender);

}  // namespace troupe::actors
