// NETWORK PEER DIRECTORY: the production form of PeerDirectory: the table of the local one, with actors of
// this process in it, and for every other watched address one peer_watch, which keeps a connection of CAF's
// middleman and publishes in the table what it finds there.
//
//   peer_watch:  dialling -> greeting -> up -> (DOWN) dialling -> ...      back-off 50 ms, doubling to 2 s
//
// The connection is made off the actors and then given to CAF (dial.hpp). After a peer's restart its old
// proxies stay dead, so each DOWN means to dial, greet and monitor again.
#pragma once

#include <caf/actor_system.hpp>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "actors/core/work_pool.hpp"
#include "actors/peers/local_peer_directory.hpp"
#include "actors/peers/peer_network.hpp"

namespace troupe::actors {

class NetworkPeerDirectory final : public PeerDirectory {
 public:
  // `system` has a middleman; both outlive this. `credentials`: for connections over TCP; null: plain ones.
  // Threads: any.
  NetworkPeerDirectory(caf::actor_system& system, WorkPool& pool,
                       std::shared_ptr<const security::Credentials> credentials = nullptr);
  ~NetworkPeerDirectory() override;

  void Watch(const std::string& address, std::set<std::string> interface, PeerWatcherActor watcher) override;
  void Forget(const std::string& address, const PeerWatcherActor& watcher) override;

  // An actor of this process, for watchers of this process.
  void PublishHere(const std::string& address, caf::strong_actor_ptr actor, std::set<std::string> interface);
  // Publishes an actor for other processes at `host` and `port` (0: chosen); answers the port. Unavailable
  // with the reason.
  absl::StatusOr<std::uint16_t> Listen(caf::strong_actor_ptr actor, std::set<std::string> interface,
                                       const std::string& host, std::uint16_t port);
  // What is known of the connections that other processes made.
  [[nodiscard]] PeerConnections& accepted() { return *network_.connections; }
  // The peer that sent a message.
  [[nodiscard]] std::shared_ptr<const PeerIdentities> identities() const { return network_.identities; }
  // The credentials have been loaded again: connections whose certificate they refuse are closed.
  void CloseRefused();
  // Lets go of every actor.
  void Clear();

 private:
  struct Connections;
  caf::actor_system& system_;
  WorkPool& pool_;
  const PeerNetwork network_;
  std::shared_ptr<Connections> connections_;
};

// "host:port" in its parts; InvalidArgument when it is none.
absl::StatusOr<std::pair<std::string, std::uint16_t>> ParseAddress(const std::string& address);

}  // namespace troupe::actors
