// LOCAL PEER DIRECTORY: a table of addresses: peers of one process (role all, tests, the simulator).
// Publishing announces; retracting, replacing and the actor's own end say lost. A watcher's end forgets it.
// Thread-safe; watchers hear by message.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "actors/seams/peer_directory.hpp"

namespace troupe::actors {

class LocalPeerDirectory final : public PeerDirectory {
 public:
  // `on_idle` hears of each address whose last watcher has gone; on any thread, and it may call back.
  explicit LocalPeerDirectory(std::function<void(const std::string&)> on_idle = {});
  ~LocalPeerDirectory() override;

  void Watch(const std::string& address, std::set<std::string> interface, PeerWatcherActor watcher) override;
  void Forget(const std::string& address, const PeerWatcherActor& watcher) override;
  [[nodiscard]] bool Watched(const std::string& address) const;

  // `interface`: what system().message_types(handle) says. Replaces what stood at the address.
  void Publish(const std::string& address, caf::strong_actor_ptr actor, std::set<std::string> interface);
  void Retract(const std::string& address, const std::string& reason);
  // Lets go of every actor, so that a system can end.
  void Clear();

 private:
  struct Table;
  std::shared_ptr<Table> table_;  // actors that end look for it, also when the directory is gone
};

}  // namespace troupe::actors
