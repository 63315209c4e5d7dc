#include "actors/daemon/common.hpp"

#include <netdb.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <time.h>

#include <caf/actor_ostream.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "actors/daemon/caf_settings.hpp"
#include "actors/peers/local_socket.hpp"
#include "base/status.hpp"
#include "cluster/event_log.hpp"
#include "transport/host_id.hpp"
#include "transport/ip_address.hpp"
#include "transport/local_channel.hpp"
#include "transport/memory_file.hpp"
#include "transport/remote_channel.hpp"
#include "transport/stream_endpoint.hpp"
#include "transport/ucx_endpoint.hpp"

namespace troupe::actors {

namespace {

absl::Status MakeDirectory(const std::string& what, const std::string& path, bool is_private) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && is_private) {
    std::filesystem::permissions(path, std::filesystem::perms::owner_all, error);
  }
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("cannot make the ", what, " directory '", path,
                                                  "': ", error.message(), "; choose another with --", what));
}

absl::StatusOr<transport::UniqueFd> TryListen(const std::string& host, std::uint16_t port,
                                              const std::string& option) {
  const auto asked = absl::StrCat("cannot listen at ", host, ":", port);
  const auto choose = absl::StrCat("choose another with --", option);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const auto name = Unbracketed(host);
  if (const int error = getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0)
    return absl::InvalidArgumentError(absl::StrCat(asked, ": ", gai_strerror(error), "; ", choose));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  transport::UniqueFd fd(socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol));
  const int on = 1;
  if (fd.valid() && setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 && listen(fd.get(), 1) == 0)
    return fd;
  const int error = errno;
  if (error == EADDRINUSE)
    return absl::AlreadyExistsError(
        absl::StrCat(asked, ": another program has the port; stop it, or ", choose));
  return absl::InvalidArgumentError(absl::StrCat(asked, ": ", std::strerror(error), "; ", choose));
}

// The address behind a name, with a port that the system chooses: actors may listen at a name, and the server of tensors
// takes addresses only.
absl::StatusOr<std::string> TensorAddress(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), "0", &hints, &found); error != 0)
    return absl::InvalidArgumentError(absl::StrCat("cannot listen for tensors at '", host, "': ",
                                                   gai_strerror(error), "; choose another with --listen"));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  sockaddr_storage address{};
  std::memcpy(&address, found->ai_addr, found->ai_addrlen);
  return transport::FormatAddress(address);
}

bool OnThisMachine(const std::string& address) {
  return IsLoopback(HostOf(address));
}

// Where the manager and this daemon have loopback addresses, all members run on this machine and map what
// lies here: no port is opened for others. With --host-id the operator says that hosts are told apart all the
// same.
bool ServesOtherHosts(const DaemonConfig& config) {
  if (config.member.embedded) return false;
  return !OnThisMachine(config.member.listen) || !OnThisMachine(config.member.manager) ||
         config.member.host_id != transport::HostId();
}

absl::StatusOr<std::unique_ptr<transport::RemoteEndpoint>> StartTensorEndpoint(
    const DaemonConfig& config, const Common& common, transport::SliceSource source) {
  TROUPE_ASSIGN_OR_RETURN(const std::string bind, TensorAddress(HostOf(config.member.listen)));
  if (config.tensors.network == TensorNetwork::kStream) {
    transport::StreamEndpoint::Options options;
    options.bind = bind;
    options.refusals = common.tensor_refusals;
    options.credentials = common.credentials;
    return transport::StreamEndpoint::Start(std::move(options), std::move(source));
  }
  spdlog::warn(
      "tensors travel to other hosts over UCX: not encrypted, at ports that only the cluster may reach");
  transport::UcxEndpoint::Options options;
  options.bind = bind;
  options.refusals = common.tensor_refusals;
  // A daemon at a loopback address whose manager is elsewhere still fetches from there.
  options.only_interface_of_bind =
      OnThisMachine(config.member.listen) == OnThisMachine(config.member.manager);
  return transport::UcxEndpoint::Start(std::move(options), std::move(source));
}

}  // namespace

std::int64_t UnixNow() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

spdlog::level::level_enum LogLevelOf(const std::string& event_kind) {
  if (event_kind == "function-broken") return spdlog::level::err;
  return event_kind == cluster::kSwapEvent ? spdlog::level::debug : spdlog::level::info;
}

Common::Common(const DaemonConfig& c)
    : config(c), manager(c.member.manager), incarnation(static_cast<std::uint64_t>(UnixNow())) {}

Common::~Common() {
  if (directory != nullptr) directory->Clear();
}

absl::StatusOr<std::unique_ptr<Common>> Common::Create(const DaemonConfig& config) {
  std::unique_ptr<Common> out(new Common(config));
  if (config.member.roles.Has(security::Role::kGateway) && !config.http.tls_certificate.empty()) {
    TROUPE_ASSIGN_OR_RETURN(
        out->https, security::ServerCertificate::Load({config.http.tls_certificate, config.http.tls_key}));
  }
  TROUPE_RETURN_IF_ERROR(MakeDirectory("data", config.member.data, false));
  TROUPE_RETURN_IF_ERROR(MakeDirectory("run", config.member.run, true));
  const bool owns_data = config.member.roles.HasAny({security::Role::kManager, security::Role::kNode});
  if (owns_data) {
    TROUPE_ASSIGN_OR_RETURN(out->objects, storage::DiskModelRepository::At(config.member.data + "/models"));
  }
  if (!config.security.tls_dir.empty()) {
    TROUPE_ASSIGN_OR_RETURN(
        out->credentials,
        security::Credentials::Load(security::CredentialFiles::InFolder(config.security.tls_dir)));
  }
  // The lock of the models is held, so that no other process writes there. A gateway has no lock, and may
  // share the directory.
  storage::FileAuditLog::Options audit;
  audit.directory = config.member.data + (owns_data ? "/audit" : "/gateway/audit");
  audit.say = [](const std::string& line) { spdlog::error("{}", line); };
  TROUPE_ASSIGN_OR_RETURN(out->audit, storage::FileAuditLog::Open(std::move(audit)));
  transport::LocalChannel::Options local;
  local.name = config.member.name;
  local.socket = absl::StrCat(config.member.run, "/arena-", config.member.name, ".sock");
  local.capacity = config.tensors.arena;
  local.directories = {config.member.run, config.tensors.arena_root};
  local.host = config.member.host_id;
  local.refusals = out->arena_refusals;
  if (!ServesOtherHosts(config)) {
    TROUPE_ASSIGN_OR_RETURN(out->channel, transport::LocalChannel::Create(std::move(local)));
  } else {
    transport::RemoteChannel::Options remote;
    remote.local = std::move(local);
    if (config.security.allow_faults) out->cut = std::make_shared<transport::ChannelCut>();
    remote.cut = out->cut;
    remote.start = [&](transport::SliceSource source) {
      return StartTensorEndpoint(config, *out, std::move(source));
    };
    TROUPE_ASSIGN_OR_RETURN(auto channel, transport::RemoteChannel::Create(std::move(remote)));
    out->remote = channel.get();
    out->channel = std::move(channel);
  }
  ApplyCafSettings(config, out->actor_config);
  out->system = std::make_unique<caf::actor_system>(out->actor_config);
  // CAF prints each message that an actor has no handler for, with all that its sender wrote. A peer must not
  // fill this process's output, nor write lines into it.
  caf::actor_ostream::redirect_all(*out->system, "/dev/null");
  out->directory = std::make_unique<NetworkPeerDirectory>(*out->system, out->pool, out->credentials);
  out->directory->accepted().SetLog([](const std::string& line) { spdlog::warn("{}", line); });
  return out;
}

absl::StatusOr<std::pair<std::string, std::uint16_t>> SplitBind(const std::string& address) {
  const auto colon = address.rfind(':');
  unsigned port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535)
    return absl::InvalidArgumentError(
        absl::StrCat("'", address, "' is not a valid address: write HOST:PORT"));
  return std::pair(address.substr(0, colon), static_cast<std::uint16_t>(port));
}

absl::Status CheckPorts(const DaemonConfig& config) {
  std::vector<std::pair<std::string, std::string>> wanted = {{"operations", config.member.operations}};
  using security::Role;
  const security::Roles roles = config.member.roles;
  if (roles.Has(Role::kManager)) wanted.emplace_back("manager", config.member.manager);
  if (roles.HasAny({Role::kNode, Role::kGateway})) wanted.emplace_back("listen", config.member.listen);
  if (roles.Has(Role::kGateway)) wanted.emplace_back("http", config.http.address);
  // Held until all are tried: two options may name one port by different hosts.
  std::vector<transport::UniqueFd> held;
  std::map<std::string, std::string> taken;  // by whom
  for (const auto& [option, address] : wanted) {
    TROUPE_ASSIGN_OR_RETURN(const auto bind, SplitBind(address));
    if (bind.second == 0) continue;
    if (const auto [other, first] = taken.emplace(address, option); !first)
      return absl::InvalidArgumentError(absl::StrCat("--", option, " and --", other->second, " are both ",
                                                     address, ": give --", option, " another port"));
    // The number of a Unix socket too may be no other program's TCP port: it would be taken for ours.
    TROUPE_ASSIGN_OR_RETURN(held.emplace_back(), TryListen(bind.first, bind.second, option));
    const bool of_actors = option == "manager" || option == "listen";
    if (!of_actors || !IsLoopback(bind.first)) continue;
    auto local = ListenLocal(bind.first, bind.second);
    if (!local.ok()) return PortError(address, absl::StrCat("--", option));
    held.push_back(std::move(local->first));
  }
  return absl::OkStatus();
}

absl::Status PortError(const std::string& address, const std::string& reason) {
  return absl::AlreadyExistsError(absl::StrCat("cannot listen at ", address, " (", reason,
                                               "): another program has the port; stop it or choose another"));
}

}  // namespace troupe::actors
