// PEER CERTIFICATES: the certificates of the connections that this process has now, so that a connection ends
// when the certificate that it was made with is revoked. Thread-safe.
#pragma once

#include <list>
#include <memory>
#include <mutex>

#include "actors/peers/peer_connections.hpp"
#include "actors/peers/peer_identities.hpp"
#include "actors/peers/peer_transport.hpp"
#include "base/units.hpp"
#include "security/credentials.hpp"

namespace troupe::actors {

class PeerCertificates {
 private:
  struct Shown {
    int socket;
    security::ShownCertificate shown;
    std::shared_ptr<const Peer> peer;
    bool closed = false;
  };

 public:
  // For as long as the connection lives. Destroyed before its descriptor is closed.
  class Entry {
   public:
    Entry() = default;
    Entry(Entry&& other) noexcept : owner_(std::move(other.owner_)), place_(other.place_) {}
    Entry& operator=(Entry&&) = delete;
    ~Entry();

   private:
    friend class PeerCertificates;
    std::shared_ptr<PeerCertificates> owner_;  // null: none
    std::list<Shown>::iterator place_;
  };
  static Entry Add(const std::shared_ptr<PeerCertificates>& certificates, int socket,
                   security::ShownCertificate shown, std::shared_ptr<const Peer> peer);

  // Shuts down the connections whose certificate the credentials of now refuse, and tells `connections`.
  void CloseRefused(const security::Snapshot& credentials, PeerConnections& connections, Time now);

 private:
  std::mutex mutex_;
  std::list<Shown> shown_;  // guarded by mutex_
};

}  // namespace troupe::actors
