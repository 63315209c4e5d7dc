// PEER DIRECTORY: which actors are at which address, connected or not. Production: connections of CAF's
// middleman, kept up by peer_watch (network_peer_directory); one process, tests and the simulator: a table
// (local_peer_directory). One contract test runs on both.
#pragma once

#include <set>
#include <string>

#include "actors/interfaces/peer_watcher.hpp"

namespace troupe::actors {

class PeerDirectory {
 public:
  virtual ~PeerDirectory() = default;
  // Keeps `watcher` informed about the actor published at `address` until Forget or the watcher's end. The
  // actor is announced if it has every operation of `interface` (as CAF's system().message_types<Handle>()
  // names them). A manager, node or gateway of another release is announced, too, if it lacks some of them; a
  // question that such an actor does not know fails with caf::sec::unexpected_message (actors/peers/earlier_peer).
  virtual void Watch(const std::string& address, std::set<std::string> interface,
                     PeerWatcherActor watcher) = 0;
  virtual void Forget(const std::string& address, const PeerWatcherActor& watcher) = 0;
};

}  // namespace troupe::actors
