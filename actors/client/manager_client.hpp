// MANAGER CLIENT: the cluster manager for threads outside actors: the gateway's management paths, the shell.
// Its one actor finds the manager through a PeerDirectory and asks it; answers come as callbacks, exactly
// once, on an actor thread. Threads: any.
#pragma once

#include <caf/actor_system.hpp>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "actors/seams/peer_directory.hpp"
#include "base/units.hpp"
#include "proto/admin.pb.h"

namespace troupe::actors {

class ManagerClient {
 public:
  template <class T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  // `system` and `directory` outlive it. `manager` is its address.
  ManagerClient(caf::actor_system& system, PeerDirectory& directory, const std::string& manager);
  ~ManagerClient();
  ManagerClient(const ManagerClient&) = delete;
  ManagerClient& operator=(const ManagerClient&) = delete;

  // An error of the manager's (AdminReply.code) comes as the status. UNAVAILABLE when it cannot be reached in
  // time.
  void Ask(proto::AdminRequest request, Duration timeout, Done<proto::AdminReply> done);
  // While the client lives. The upload ends with CANCELLED and lets go of its bytes; nothing happens when it
  // is over.
  using GiveUp = std::function<void()>;
  // Sends a file in chunks; answers its SHA-256, under which the manager knows it. `find`: how long it may
  // look for the manager. `progress` (may be empty) hears bytes sent, on an actor thread. The bytes are held
  // until the answer.
  static constexpr Duration kFindTimeout = std::chrono::seconds(5);
  GiveUp Upload(std::shared_ptr<const std::string> bytes, Duration find, Done<std::string> done,
                std::function<void(std::uint64_t)> progress = nullptr);

 private:
  class Agent;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace troupe::actors
