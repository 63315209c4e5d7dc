// NETWORK: what lies between the members of a simulated cluster: delays, connections that are lost,
// partitions. A member holds a proxy of each actor of another member, as it does over CAF's middleman: what
// it sends arrives later, in order, from a proxy of the sender; handles inside messages become proxies as
// well. Like TCP, it loses nothing without losing the connection:
//
//   connected -> blocked           a partition
//   blocked -> connected           it healed in time: the messages that were held arrive now
//   blocked, connected -> lost     nothing came through for the time-out, or the connection was cut: its
//                                  proxies end (DOWN, PeerLost), the messages on their way are gone
//   lost -> connected              when nothing blocks it: new proxies (PeerUp)
//
// One thread, under the scheduler's virtual clock; the same calls give the same order of events.
#pragma once

#include <caf/actor_control_block.hpp>
#include <caf/actor_system.hpp>
#include <caf/message.hpp>
#include <caf/message_id.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "actors/peers/local_peer_directory.hpp"
#include "sim/network_options.hpp"

namespace troupe::sim {

// Sees what goes from one member to another, in the order in which it goes; never what was dropped. Actors
// and numbers are as their homes know them.
class NetworkTap {
 public:
  struct Passage {
    const std::string& from;
    const std::string& to;
    const caf::strong_actor_ptr& sender;
    const caf::strong_actor_ptr& receiver;
    caf::message_id id;
  };
  virtual ~NetworkTap() = default;
  virtual void Sent(const Passage& passage, const caf::message& content) = 0;
  // About to be delivered; what this makes of it is.
  virtual void Arrives(const Passage& passage, caf::message& content) = 0;
};

class Network {
 public:
  // `system` runs on the test coordinator and outlives it.
  Network(caf::actor_system& system, NetworkOptions options);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  // Where `member` finds its peers.
  [[nodiscard]] actors::LocalPeerDirectory& DirectoryOf(const std::string& member);
  // `actor` lives at `member`, at an address of the same name. Replaces what stood there.
  void Publish(const std::string& member, const caf::strong_actor_ptr& actor,
               std::set<std::string> interface);
  // It cannot be found any more. A process that has its handle hears of its end from itself.
  void Retract(const std::string& member);

  // Nothing goes from `from` to `to` (and back, unless `one_way`) until as many Heals; partitions add up.
  void Partition(const std::string& from, const std::string& to, bool one_way);
  void Heal(const std::string& from, const std::string& to, bool one_way);
  // What goes from `from` to `to` takes so much longer, until it is told otherwise.
  void Slow(const std::string& from, const std::string& to, Duration extra);
  // The connection between the two is lost, and made anew.
  void Cut(const std::string& a, const std::string& b);

  // Null: there is no listener. Outlives what it hears.
  void SetTap(NetworkTap* tap);

  struct Counts {
    std::uint64_t delivered = 0;  // messages between members
    std::uint64_t dropped = 0;    // with their connection
    std::uint64_t lost = 0;       // connections
  };
  [[nodiscard]] const Counts& counts() const;
  // Lets go of every actor, so that a system can end; nothing is delivered any more.
  void Clear();

 private:
  class Core;
  std::shared_ptr<Core> core_;  // actors that end look for it, also when the network is gone
};

}  // namespace troupe::sim
