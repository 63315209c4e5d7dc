// LOCAL PEER DIRECTORY: peers of one process (role all, tests, the simulator): a table of addresses.
// Publishing announces, retracting says lost. Thread-safe; watchers hear by message.
#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/seams/peer_directory.hpp"

namespace troupe::actors {

class LocalPeerDirectory final : public PeerDirectory {
 public:
  void Watch(const std::string& address, std::set<std::string> interface, PeerWatcherActor watcher) override;
  void Forget(const std::string& address, const PeerWatcherActor& watcher) override;

  // `interface`: what system().message_types(handle) says. Replaces what stood at the address.
  void Publish(const std::string& address, caf::strong_actor_ptr actor, std::set<std::string> interface);
  void Retract(const std::string& address, const std::string& reason);
  // Lets go of every actor, so that a system can end.
  void Clear();

 private:
  struct Published {
    caf::strong_actor_ptr actor;
    std::set<std::string> interface;
  };
  struct Watching {
    PeerWatcherActor watcher;
    std::set<std::string> interface;
  };
  void Announce(const std::string& address, const Watching& watching);

  std::mutex mutex_;
  std::map<std::string, Published> published_;             // guarded by mutex_
  std::map<std::string, std::vector<Watching>> watching_;  // guarded by mutex_
  std::uint64_t connections_ = 0;                          // guarded by mutex_
};

}  // namespace troupe::actors
