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
#include "actors/upload_source.hpp"
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
  // One chunk, as it is; a refusal comes as its reply.
  void Send(proto::UploadChunk chunk, Done<proto::UploadReply> done);
  // While the client lives. The upload ends with CANCELLED, lets go of its source, and what has arrived of it is
  // dropped; nothing happens when it is over.
  using GiveUp = std::function<void()>;
  // Sends a file in chunks; answers its SHA-256, under which the manager knows it. It begins behind what the manager has
  // of it already for this `client`, and goes on there when the connection breaks. `find`: how long it may look for the
  // manager at first. `progress` (may be empty) hears how many bytes are there, on an actor thread. The source is read on
  // the caller's thread (for its digest), then on that one, and held until the answer.
  static constexpr Duration kFindTimeout = std::chrono::seconds(5);
  GiveUp Upload(std::shared_ptr<const UploadSource> source, const std::string& client, Duration find,
                Done<std::string> done, std::function<void(std::uint64_t)> progress = nullptr);

 private:
  class Agent;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace troupe::actors
