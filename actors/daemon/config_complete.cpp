// What follows from several options together, and what contradicts itself.
#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "actors/daemon/config.hpp"
#include "actors/daemon/system_presets.hpp"
#include "actors/peers/local_socket.hpp"
#include "actors/peers/network_peer_directory.hpp"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "cluster/autoscaling/demand_forecast.hpp"
#include "cluster/autoscaling/scaling_policy.hpp"
#include "cluster/copies/fetch_policy.hpp"
#include "cluster/copies/replica_policy.hpp"
#include "cluster/function_registry.hpp"
#include "cluster/provisioning.hpp"
#include "cluster/routing_policy.hpp"
#include "gpu/memory/intermediates.hpp"
#include "gpu/memory/memory_policy.hpp"
#include "gpu/sharing/sharing_policy.hpp"
#include "node/scheduling/scheduler_types.hpp"
#include "node/scheduling/topology.hpp"
#include "proto/isolation.hpp"
#include "security/credentials.hpp"
#include "transport/host_id.hpp"

namespace troupe::actors {

namespace {

absl::Status WrongAddress(const std::string& found, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat("found '", found, "', expected ", expected));
}

// The preset, and over it the slots that were named: in whichever order they were said.
absl::Status CompletePolicies(DaemonConfig& config) {
  TROUPE_ASSIGN_OR_RETURN(const auto preset, FindSystemPreset(config.policies.preset));
  config.policies.chosen = preset.policies;
  TROUPE_RETURN_IF_ERROR(ApplyPresetOptions(preset, config));
  for (const auto slot : kPolicySlots) {
    if (!(config.policies.slots.*slot).empty()) config.policies.chosen.*slot = config.policies.slots.*slot;
  }
  // Names that a node alone knows are wrong for every role: one file may serve them all.
  TROUPE_RETURN_IF_ERROR(node::FindSchedulerPolicies(config.policies.chosen).status());
  TROUPE_RETURN_IF_ERROR(gpu::FindSwapPolicy(config.policies.chosen.swap).status());
  TROUPE_RETURN_IF_ERROR(gpu::FindLinkSharing(config.worker.link_sharing).status());
  TROUPE_RETURN_IF_ERROR(gpu::FindIntermediates(config.worker.intermediates).status());
  TROUPE_RETURN_IF_ERROR(gpu::FindMemoryPolicy(config.policies.chosen.memory).status());
  TROUPE_RETURN_IF_ERROR(gpu::FindSharingPolicy(config.policies.chosen.sharing).status());
  TROUPE_RETURN_IF_ERROR(cluster::FindReplicaPolicy(config.policies.chosen.replicas).status());
  TROUPE_RETURN_IF_ERROR(cluster::FindFetchPolicy(config.policies.chosen.fetching).status());
  TROUPE_RETURN_IF_ERROR(cluster::FindScalingPolicy(config.policies.chosen.scaling).status());
  TROUPE_RETURN_IF_ERROR(cluster::FindOwningRule(config.policies.chosen.owning).status());
  TROUPE_ASSIGN_OR_RETURN(const auto forecast, cluster::FindForecast(config.policies.chosen.forecast));
  if (forecast == cluster::ForecastRule::kOracle)
    return absl::InvalidArgumentError(
        "--forecast oracle: it knows the load that comes, and experiments alone do; use holt, last or season");
  return cluster::FindRoutingPolicy(config.policies.chosen.routing).status();
}

// What names a GPU knows one runtime on each: it is refused with isolated runtimes, for every role, since one file may
// serve them all.
absl::Status CheckRuntimes(const DaemonConfig& config) {
  const auto& isolation = config.node.isolation;
  if (isolation.mode == proto::ISOLATION_SHARED && isolation.runtimes == 1) return absl::OkStatus();
  const PolicyNames& names = config.policies.chosen;
  TROUPE_ASSIGN_OR_RETURN(const auto policies, node::FindSchedulerPolicies(names));
  TROUPE_RETURN_IF_ERROR(node::CheckIsolation(names, policies, true));
  TROUPE_ASSIGN_OR_RETURN(const auto routing, cluster::FindRoutingPolicy(names.routing));
  if (!routing.by_gpu) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the routing policy '", names.routing, "' (preset '", config.policies.preset,
                   "') names GPUs with one runtime each, and --isolation ",
                   std::string(proto::Name(isolation.mode)), " with ", isolation.runtimes,
                   " runtimes on a GPU was asked for; choose a routing policy by node, or --isolation shared "
                   "with one runtime"));
}

absl::Status CheckPort(const std::string& what, const std::string& address) {
  const auto colon = address.rfind(':');
  if (colon == std::string::npos) return WrongAddress(address, absl::StrCat("HOST:PORT for --", what));
  unsigned port = 0;
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535)
    return WrongAddress(address, absl::StrCat("a port from 0 to 65535 for --", what));
  return absl::OkStatus();
}

enum class Speaks { kActors, kHttp };
// Daemons and shells authenticate each other where there are certificates; /metrics is open to all.
absl::Status CheckBind(const std::string& what, const std::string& address, Speaks speaks,
                       const DaemonConfig& config) {
  TROUPE_RETURN_IF_ERROR(CheckPort(what, address));
  const auto host = address.substr(0, address.rfind(':'));
  if (config.security.insecure_network || IsLoopback(host)) return absl::OkStatus();
  if (speaks == Speaks::kActors && !config.security.tls_dir.empty()) return absl::OkStatus();
  const auto found = absl::StrCat("--", what, " '", address, "' is not loopback, and connections to it are ");
  if (speaks == Speaks::kHttp)
    return absl::InvalidArgumentError(absl::StrCat(
        found, "neither encrypted nor authenticated: use 127.0.0.1, or say --insecure-network on ",
        "a network that you trust"));
  return absl::InvalidArgumentError(absl::StrCat(
      found,
      "neither encrypted nor authenticated without a certificate: make one with 'troupe ca issue' and ",
      "say --tls-dir, use 127.0.0.1, or say --insecure-network on a network that you trust"));
}

// UCX's own protocol ends the process on bytes that it does not expect, whether there are certificates or not.
absl::Status CheckUcx(const DaemonConfig& config) {
  if (config.tensors.network != TensorNetwork::kUcx || config.member.embedded) return absl::OkStatus();
  for (const auto& [option, address] :
       {std::pair("listen", config.member.listen), {"manager", config.member.manager}}) {
    if (IsLoopback(address.substr(0, address.rfind(':')))) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--tensor-network ucx: --", option, " '", address, "' is not loopback, and any process that reaches ",
        "a port of UCX can end this daemon, read tensors and change them: use --tensor-network stream, or ",
        "ucx-trusted on a network that only the cluster's machines reach"));
  }
  return absl::OkStatus();
}

// Roles and name are those of the certificate: the manager refuses others, but only the log would say so.
absl::Status TakeIdentity(DaemonConfig& config) {
  if (config.security.tls_dir.empty()) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(
      const auto snapshot,
      security::Snapshot::Load(security::CredentialFiles::InFolder(config.security.tls_dir)));
  const auto& identity = snapshot->identity();
  for (const security::Role role : security::kAllRoles) {
    if (!config.member.roles.Has(role)) continue;
    TROUPE_RETURN_IF_ERROR(security::RequireRole(
        identity, {role}, absl::StrCat("be used with --role ", std::string(security::RoleName(role)))));
  }
  if (config.member.name.empty()) config.member.name = identity.name;
  const bool member = config.member.roles.HasAny({security::Role::kNode, security::Role::kGateway});
  if (!member || config.member.name == identity.name) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--name ", config.member.name, " is not the name in the certificate ", identity.ToString(), " in ",
      config.security.tls_dir, ": leave --name out, or use the directory of ", config.member.name));
}

// Other members are told this address and dial it, so it has to lead to this machine.
absl::Status CheckDialable(const std::string& what, const std::string& address) {
  const auto host = HostOf(address);
  in_addr four{};
  in6_addr six{};
  const bool any = (inet_pton(AF_INET, host.c_str(), &four) == 1 && four.s_addr == htonl(INADDR_ANY)) ||
                   (inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_UNSPECIFIED(&six));
  if (!any) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", what, " ", address, ": other members dial this address, and '", host,
                   "' leads to no machine; name an address of this machine, such as 192.168.1.5:0"));
}

// An HTTP server listens at an address of this machine; a name other than localhost may have any, or none.
absl::Status ResolveHttp(const std::string& what, std::string& address) {
  const auto colon = address.rfind(':');
  if (address.substr(0, colon) == "localhost") address.replace(0, colon, "127.0.0.1");
  const auto host = HostOf(address);
  in6_addr ignored{};
  if (inet_pton(AF_INET, host.c_str(), &ignored) == 1 || inet_pton(AF_INET6, host.c_str(), &ignored) == 1)
    return absl::OkStatus();
  return WrongAddress(address, absl::StrCat("localhost or an IP address such as 127.0.0.1 or [::1] for --",
                                            what, ", and a port"));
}

absl::Status CheckKinds(const GpuConfig& gpus) {
  if (gpus.kind.empty()) return absl::OkStatus();
  const std::vector<std::string> kinds = absl::StrSplit(gpus.kind, ',');
  if (kinds.size() != 1 && kinds.size() != gpus.count)
    return absl::InvalidArgumentError(absl::StrCat("gpu-kind ", gpus.kind, ": it names ", kinds.size(),
                                                   " kinds, and the node has ", gpus.count,
                                                   " GPUs; name one kind, or one of each GPU"));
  for (const auto& kind : kinds)
    if (kind.empty() || kind.size() > 100 || !std::ranges::all_of(kind, absl::ascii_isprint))
      return absl::InvalidArgumentError(absl::StrCat(
          "gpu-kind ", gpus.kind, ": a kind has between 1 and 100 printable characters of ASCII"));
  return absl::OkStatus();
}

// The manager refuses what this refuses, but only the log would say so.
absl::Status CheckName(const DaemonConfig& config) {
  const bool both =
      config.member.roles.Has(security::Role::kGateway) && config.member.roles.Has(security::Role::kNode);
  for (const char* suffix : {"", both ? "-gateway" : ""}) {
    const auto status = cluster::ValidateName("member", config.member.name + suffix);
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("--name: ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Unbracketed(const std::string& host) {
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return in_brackets ? host.substr(1, host.size() - 2) : host;
}

std::vector<std::string> RoleNames(security::Roles roles) {
  std::vector<std::string> names;
  for (const security::Role role : security::kAllRoles)
    if (roles.Has(role)) names.emplace_back(security::RoleName(role));
  std::ranges::sort(names);
  return names;
}

std::string HostOf(const std::string& address) {
  return Unbracketed(address.substr(0, address.rfind(':')));
}

absl::Status CompleteConfig(DaemonConfig& config) {
  if (config.member.roles.empty())
    return absl::InvalidArgumentError(
        "no role: say --role manager, gateway, node (several with commas) or all");
  TROUPE_RETURN_IF_ERROR(CompletePolicies(config));
  if (config.gpus.topology != "auto") {
    TROUPE_ASSIGN_OR_RETURN(const node::Topology topology, node::Topology::Parse(config.gpus.topology));
    TROUPE_RETURN_IF_ERROR(topology.Check(config.gpus.count));
  } else if (config.gpus.device == gpu::DeviceKind::kVirtual) {
    return absl::InvalidArgumentError(
        "--topology auto: virtual GPUs are wired as it is said; say how, or --device cuda");
  }
  TROUPE_RETURN_IF_ERROR(CheckKinds(config.gpus));
  if (config.gpus.device != gpu::DeviceKind::kVirtual && config.worker.compute != gpu::ComputeMode::kReal) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--compute ", std::string(NameIn(gpu::kComputeModes, config.worker.compute)), ": --device ",
        std::string(NameIn(gpu::kDeviceKinds, config.gpus.device)), " computes real results"));
  }
  TROUPE_RETURN_IF_ERROR(CheckBind("listen", config.member.listen, Speaks::kActors, config));
  TROUPE_RETURN_IF_ERROR(CheckDialable("listen", config.member.listen));
  TROUPE_RETURN_IF_ERROR(CheckBind("operations", config.member.operations, Speaks::kHttp, config));
  // The front may listen anywhere: it judges clients on other machines by their API keys.
  TROUPE_RETURN_IF_ERROR(CheckPort("http", config.http.address));
  TROUPE_RETURN_IF_ERROR(ResolveHttp("http", config.http.address));
  if (config.http.tls_certificate.empty() != config.http.tls_key.empty())
    return absl::InvalidArgumentError(
        "--http-tls-certificate and --http-tls-key belong together: give both, or neither for plain HTTP");
  TROUPE_RETURN_IF_ERROR(ResolveHttp("operations", config.member.operations));
  // The manager may choose a port for itself with 0; a daemon that connects needs the real port.
  if (!config.member.roles.Has(security::Role::kManager))
    TROUPE_RETURN_IF_ERROR(ParseAddress(config.member.manager).status());
  TROUPE_RETURN_IF_ERROR(CheckBind("manager", config.member.manager, Speaks::kActors, config));
  TROUPE_RETURN_IF_ERROR(CheckUcx(config));
  TROUPE_RETURN_IF_ERROR(TakeIdentity(config));
  if (config.membership.heartbeat <= Duration::zero() ||
      config.membership.suspect_after <= config.membership.heartbeat ||
      config.membership.dead_after <= config.membership.suspect_after)
    return absl::InvalidArgumentError("heartbeat, suspect and dead have to grow in this order");
  TROUPE_RETURN_IF_ERROR(cluster::CheckProvisioning(config.machines.limits));
  if (config.member_lease > Duration::zero() && config.member_lease < config.membership.dead_after)
    return absl::InvalidArgumentError(
        "member-lease has to be 0s, or as long as dead at least: the manager would count on a member "
        "that takes nothing");
  if (config.member.name.empty()) {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    config.member.name =
        absl::StrCat(host.data(), "-",
                     config.member.embedded ? "all" : absl::StrJoin(RoleNames(config.member.roles), "-"));
  }
  TROUPE_RETURN_IF_ERROR(CheckName(config));
  std::error_code error;
  config.member.data = std::filesystem::absolute(config.member.data, error).lexically_normal().string();
  if (config.member.run.empty()) {
    // Unix socket paths have 107 bytes, and the names inside need some of them.
    const auto inside = config.member.data + "/run";
    config.member.run = inside.size() <= 60 ? inside
                                            : absl::StrCat("/tmp/troupe-", getuid(), "-",
                                                           Sha256Hex(config.member.data).substr(0, 12));
  }
  config.member.run = std::filesystem::absolute(config.member.run, error).lexically_normal().string();
  if (config.member.run.size() > 70)
    return absl::InvalidArgumentError(absl::StrCat("run directory '", config.member.run,
                                                   "' is too long for Unix sockets: 70 bytes at most"));
  if (config.member.bin.empty()) {
    const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    // A package installs the helper programs in ../libexec/troupe; a source build has them beside trouped.
    const auto apart = here.parent_path() / "libexec" / "troupe";
    const bool beside = std::filesystem::exists(here / "troupe-import", error);
    config.member.bin = (beside || !std::filesystem::exists(apart, error) ? here : apart).string();
  }
  if (config.member.host_id.empty()) config.member.host_id = transport::HostId();
  if (config.member.embedded) config.worker.lease = Duration::zero();
  config.worker.concurrency = config.node.scheduler.concurrency;
  config.worker.swap = config.policies.chosen.swap;
  config.worker.memory = config.policies.chosen.memory;
  config.worker.sharing = config.policies.chosen.sharing;
  config.worker.allow_faults = config.security.allow_faults;
  if (config.node.isolation.runtimes == 0)
    config.node.isolation.runtimes = config.node.isolation.mode == proto::ISOLATION_SHARED ? 1 : 3;
  return CheckRuntimes(config);
}

}  // namespace troupe::actors
