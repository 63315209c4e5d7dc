#include "actors/peers/peer_identities.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/peers/local_socket.hpp"

namespace troupe::actors {

namespace {

std::shared_ptr<const Peer> ThisProcess() {
  static const auto kPeer = std::make_shared<const Peer>(Peer{kEveryRole, "", "", "", "this process"});
  return kPeer;
}
std::shared_ptr<const Peer> GonePeer() {
  static const auto kPeer = std::make_shared<const Peer>(Peer{{}, "", "", "", "a connection that has ended"});
  return kPeer;
}

bool SameHolder(const Peer& a, const Peer& b) {
  return a.roles == b.roles && a.caller == b.caller;
}

}  // namespace

std::string Peer::ToString() const {
  if (name.empty()) return address;
  return absl::StrCat(security::Identity{roles, name, serial}.ToString(), " at ", address);
}

Peer CertifiedPeer(const security::Identity& identity, std::string address) {
  return {identity.roles, identity.name, identity.serial, absl::StrCat("certificate/", identity.name),
          std::move(address)};
}

Peer LocalPeerOf(int socket) {
  return {kEveryRole, "", "", LocalUserName(socket), LocalPeer(socket)};
}

Peer UnaskedPeer(std::string address) {
  return {kEveryRole, "", "", "", std::move(address)};
}

proto::Caller CallerOf(const Peer& peer) {
  proto::Caller caller;
  caller.set_name(CallerName(peer));
  caller.set_address(peer.address);
  return caller;
}

PeerIdentities::Entry::Entry(Entry&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), node_(std::move(other.node_)) {}

PeerIdentities::Entry& PeerIdentities::Entry::operator=(Entry&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(node_, other.node_);
  return *this;
}

PeerIdentities::Entry::~Entry() {
  if (owner_ != nullptr) owner_->Leave(node_);
}

absl::StatusOr<PeerIdentities::Entry> PeerIdentities::Enter(const std::shared_ptr<PeerIdentities>& identities,
                                                            const caf::node_id& node,
                                                            std::shared_ptr<const Peer> peer) {
  if (node == identities->own_)
    return absl::PermissionDeniedError(
        absl::StrCat(peer->ToString(), " says that it is this process itself"));
  const std::lock_guard lock(identities->mutex_);
  auto& known = identities->known_[node];
  if (known.connections > 0 && !SameHolder(*known.peer, *peer))
    return absl::PermissionDeniedError(absl::StrCat(
        peer->ToString(), " says that it is the process which is connected as ", known.peer->ToString(),
        "; if it is, give both programs one kind of address for each other, loopback or not"));
  known.peer = std::move(peer);  // the newest certificate
  ++known.connections;
  Entry entry;
  entry.owner_ = identities;
  entry.node_ = node;
  return entry;
}

void PeerIdentities::Leave(const caf::node_id& node) {
  const std::lock_guard lock(mutex_);
  const auto it = known_.find(node);
  if (--it->second.connections == 0) known_.erase(it);
}

std::shared_ptr<const Peer> PeerIdentities::Of(const caf::strong_actor_ptr& sender) const {
  if (sender == nullptr || sender->node() == own_) return ThisProcess();
  const std::lock_guard lock(mutex_);
  const auto it = known_.find(sender->node());
  return it == known_.end() ? GonePeer() : it->second.peer;
}

std::shared_ptr<const Peer> PeerOf(const std::shared_ptr<const PeerIdentities>& identities,
                                   const caf::strong_actor_ptr& sender) {
  return identities == nullptr ? ThisProcess() : identities->Of(sender);
}

}  // namespace troupe::actors
