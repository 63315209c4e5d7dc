#include "actors/peers/peer_certificates.hpp"

#include <sys/socket.h>

#include <string>
#include <utility>

namespace troupe::actors {

PeerCertificates::Entry::~Entry() {
  if (owner_ == nullptr) return;
  const std::lock_guard lock(owner_->mutex_);
  owner_->shown_.erase(place_);
}

PeerCertificates::Entry PeerCertificates::Add(const std::shared_ptr<PeerCertificates>& certificates,
                                              int socket, security::ShownCertificate shown,
                                              std::shared_ptr<const Peer> peer) {
  Entry entry;
  const std::lock_guard lock(certificates->mutex_);
  entry.owner_ = certificates;
  entry.place_ =
      certificates->shown_.insert(certificates->shown_.end(), {socket, std::move(shown), std::move(peer)});
  return entry;
}

void PeerCertificates::CloseRefused(const security::Snapshot& credentials, PeerConnections& connections,
                                    Time now) {
  const std::lock_guard lock(mutex_);
  for (auto& one : shown_) {
    if (one.closed) continue;
    const auto status = credentials.CheckPeer(one.shown.certificate.get(), one.shown.chain);
    if (status.ok()) continue;
    one.closed = true;  // it is told once
    ::shutdown(one.socket, SHUT_RDWR);
    connections.Refuse("certificate", one.peer->address, std::string(status.message()), now);
  }
}

}  // namespace troupe::actors
