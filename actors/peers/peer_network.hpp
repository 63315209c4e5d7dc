// What all connections of one process with other processes share. A value; its parts are thread-safe.
#pragma once

#include <caf/node_id.hpp>
#include <memory>

#include "actors/peers/peer_certificates.hpp"
#include "actors/peers/peer_connections.hpp"
#include "actors/peers/peer_identities.hpp"
#include "security/credentials.hpp"

namespace troupe::actors {

struct PeerNetwork {
  explicit PeerNetwork(const caf::node_id& own, std::shared_ptr<const security::Credentials> shown = nullptr)
      : identities(std::make_shared<PeerIdentities>(own)), credentials(std::move(shown)) {}

  std::shared_ptr<PeerConnections> connections = std::make_shared<PeerConnections>();
  std::shared_ptr<PeerCertificates> certificates = std::make_shared<PeerCertificates>();
  std::shared_ptr<PeerIdentities> identities;
  // Null: connections over TCP are plain (--insecure-network, or only loopback addresses).
  std::shared_ptr<const security::Credentials> credentials;
};

}  // namespace troupe::actors
