// What the roles of one daemon share: the actor system, the peer directory, the tensor channel, directories,
// metrics. Made first and destroyed last. Owned by the Daemon.
#pragma once

#include <prometheus/registry.h>
#include <spdlog/common.h>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/io/middleman.hpp>
#include <memory>
#include <string>
#include <utility>

#include "actors/core/work_pool.hpp"
#include "actors/daemon/config.hpp"
#include "actors/peers/network_peer_directory.hpp"
#include "base/status.hpp"
#include "security/credentials.hpp"
#include "security/server_certificate.hpp"
#include "storage/audit_log.hpp"
#include "storage/disk_model_repository.hpp"
#include "transport/remote_channel.hpp"

namespace troupe::actors {

// "host:port", where port 0 lets the system choose.
absl::StatusOr<std::pair<std::string, std::uint16_t>> SplitBind(const std::string& address);
// Whether this process can listen at every address that its roles are configured with, before anything is
// started: what began would have to be taken down again. The error names the option.
absl::Status CheckPorts(const DaemonConfig& config);
[[nodiscard]] absl::Status PortError(const std::string& address, const std::string& reason);

// How long a role waits for its own actor, for a page of status or of metrics.
inline constexpr Duration kAskTimeout = std::chrono::seconds(1);

class Common {
 public:
  // Makes the directories, the actor system with its middleman and the tensor channel. The error names the
  // directory or address, and what to do.
  static absl::StatusOr<std::unique_ptr<Common>> Create(const DaemonConfig& config);
  ~Common();

  // Publishes an actor at `address` ("host:port", port 0: chosen) for other processes and for this one.
  // Answers the address with its port. AlreadyExists when the port is in use.
  template <class Handle>
  absl::StatusOr<std::string> Publish(const Handle& actor, const std::string& address) {
    TROUPE_ASSIGN_OR_RETURN(const auto bind, SplitBind(address));
    // The typed handle says which operations others find there.
    const auto port = directory->Listen(caf::actor_cast<caf::strong_actor_ptr>(actor),
                                        system->message_types<Handle>(), bind.first, bind.second);
    if (!port.ok()) return PortError(address, std::string(port.status().message()));
    const auto real = bind.first + ":" + std::to_string(*port);
    directory->PublishHere(real, caf::actor_cast<caf::strong_actor_ptr>(actor),
                           system->message_types<Handle>());
    return real;
  }

  const DaemonConfig& config;
  std::string manager;  // its address; where this process is the manager: with the port that it listens at
  std::uint64_t incarnation;  // unix time in nanoseconds at start: grows with every start
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  std::unique_ptr<storage::AuditLog>
      audit;  // of what is changed here: the cluster, at a manager; the log level
  caf::actor_system_config actor_config;
  std::unique_ptr<caf::actor_system> system;
  WorkPool pool{4};
  std::shared_ptr<security::Credentials> credentials;  // null: connections over TCP are plain
  std::unique_ptr<NetworkPeerDirectory> directory;
  std::shared_ptr<transport::ChannelCut> cut;  // of `remote`; null unless faults are allowed
  std::unique_ptr<transport::TensorChannel> channel;
  // At the sockets over which tensors go; null pointers never.
  std::shared_ptr<transport::SocketRefusals> arena_refusals = std::make_shared<transport::SocketRefusals>();
  std::shared_ptr<transport::SocketRefusals> tensor_refusals = std::make_shared<transport::SocketRefusals>();
  transport::RemoteChannel* remote = nullptr;  // `channel`, unless this process serves no other host
  std::unique_ptr<storage::DiskModelRepository> objects;
  std::shared_ptr<security::ServerCertificate>
      https;  // of a gateway's HTTP front; null: it speaks plain HTTP

 private:
  explicit Common(const DaemonConfig& c);
};

[[nodiscard]] std::int64_t UnixNow();  // nanoseconds since 1970
// Of an event in the log of a daemon: frequent kinds are logged at the debug level.
[[nodiscard]] spdlog::level::level_enum LogLevelOf(const std::string& event_kind);

}  // namespace troupe::actors
