#include "actors/peers/local_peer_directory.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <utility>

namespace troupe::actors {

void LocalPeerDirectory::Watch(const std::string& address, std::set<std::string> interface,
                               PeerWatcherActor watcher) {
  const std::lock_guard lock(mutex_);
  auto& all = watching_[address];
  all.push_back({std::move(watcher), std::move(interface)});
  Announce(address, all.back());
}

void LocalPeerDirectory::Forget(const std::string& address, const PeerWatcherActor& watcher) {
  const std::lock_guard lock(mutex_);
  const auto it = watching_.find(address);
  if (it == watching_.end()) return;
  std::erase_if(it->second, [&](const Watching& watching) { return watching.watcher == watcher; });
  if (it->second.empty()) watching_.erase(it);
}

void LocalPeerDirectory::Publish(const std::string& address, caf::strong_actor_ptr actor,
                                 std::set<std::string> interface) {
  const std::lock_guard lock(mutex_);
  published_[address] = {std::move(actor), std::move(interface)};
  for (const auto& watching : watching_[address]) Announce(address, watching);
}

void LocalPeerDirectory::Retract(const std::string& address, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (published_.erase(address) == 0) return;
  proto::PeerLost lost;
  lost.set_address(address);
  lost.set_reason(reason);
  for (const auto& watching : watching_[address]) caf::anon_send(watching.watcher, lost);
}

void LocalPeerDirectory::Clear() {
  const std::lock_guard lock(mutex_);
  published_.clear();
  watching_.clear();
}

void LocalPeerDirectory::Announce(const std::string& address, const Watching& watching) {
  const auto it = published_.find(address);
  if (it == published_.end()) return;
  const auto& offered = it->second.interface;
  if (!std::includes(offered.begin(), offered.end(), watching.interface.begin(), watching.interface.end()))
    return;
  proto::PeerUp up;
  up.set_address(address);
  up.set_connection(++connections_);
  caf::anon_send(watching.watcher, std::move(up), it->second.actor);
}

}  // namespace troupe::actors
