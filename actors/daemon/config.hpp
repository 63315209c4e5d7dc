// The daemon's configuration: one table of options; each is a key of the YAML file, and a flag of the same
// name or an assignment by --set. Each option sets a field of a nested struct. Where a room has a struct of
// what an operator may set, that struct stands here, and is handed on as it is.
#pragma once

#include <spdlog/common.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/policy.hpp"
#include "base/units.hpp"
#include "cluster/membership_table.hpp"
#include "cluster/provisioning.hpp"
#include "cluster/settings.hpp"
#include "gpu/device/device_settings.hpp"
#include "gpu/import/import_report.hpp"
#include "gpu/memory/intermediates.hpp"
#include "gpu/swap/swap_policy.hpp"
#include "gpu/worker/worker_process.hpp"
#include "node/settings.hpp"
#include "security/identity.hpp"

namespace troupe::actors {

// This process: its roles, its name, where it keeps its files and where it listens.
struct MemberConfig {
  security::Roles roles{};  // of which a daemon has manager, gateway and node
  bool embedded = false;    // --role all: one process, and workers that end with it
  std::string name{};       // of this member; default: from the host's name and the role
  std::string data = "troupe-data";
  std::string run{};  // run directory for sockets; default: derived from `data`
  std::string bin{};  // where troupe-gpu-worker and troupe-import are; default: beside this program
  std::string manager = "127.0.0.1:7400";
  std::string listen = "127.0.0.1:0";      // actors of a node or gateway
  std::string operations = "127.0.0.1:0";  // /metrics, /healthz, /loglevel
  // Daemons with the same one share memory; others fetch over the network. Default: what the kernel says.
  std::string host_id{};
  Duration stop_grace = std::chrono::seconds(5);
};
// Whether a gateway serves clients of its machine that name shared memory: never, where it listens on loopback
// alone, or wherever it listens.
enum class SharedMemoryOffer { kOff, kLoopback, kOn };
// A gateway's HTTP front.
struct HttpConfig {
  std::string address = "127.0.0.1:8000";
  std::string tls_certificate{};  // PEM files; empty: it speaks plain HTTP
  std::string tls_key{};
  std::vector<std::string> cors_origins{};  // of web pages that may read its answers
  unsigned threads = 1;
  unsigned connections = 4096;
  SharedMemoryOffer shared_memory = SharedMemoryOffer::kLoopback;
};
struct SecurityConfig {
  std::string tls_dir{};  // ca.pem, certificate.pem, key.pem, revoked.pem; empty: TCP connections are plain
  bool insecure_network = false;
  bool allow_faults = false;
};
// TCP, with TLS where there are certificates; or UCX, which withstands no stranger: between loopback addresses
// alone, or on any network, when the operator says that only the cluster's machines reach it.
enum class TensorNetwork { kStream, kUcx, kUcxTrusted };
struct TensorConfig {
  TensorNetwork network = TensorNetwork::kStream;  // how tensors travel between hosts
  Bytes arena = MiB(256);                          // of tensors that this process sends
  // Below which directory the sockets of other daemons' arenas may lie; the kernel sees to it that they belong
  // to the daemon's user.
  std::string arena_root = "/";
};
enum class HugePages { kOff, kAuto };  // kAuto: for the host region, where the system has some
struct GpuConfig {
  gpu::DeviceKind device = gpu::DeviceKind::kVirtual;  // or the driver's GPUs, from number 0 on
  unsigned count = 1;
  std::string kind{};  // of its GPUs, or of each with commas between them; empty: as the driver says
  Bytes memory = GiB(1);
  BytesPerSecond link{6e9};
  Duration copy_time{};    // of each copy on a link
  std::string topology{};  // of the GPUs (node/scheduling/topology.hpp); auto: as the driver says
  Bytes host_region = GiB(4);
  HugePages huge_pages = HugePages::kAuto;
  Duration hang = std::chrono::seconds(5);
};
struct PolicyConfig {
  PolicyNames chosen{};  // the preset's policies, and over them the slots that were named
  std::string preset = "troupe";
  // Slots named one by one, wherever they stand beside the preset; empty: not named.
  PolicyNames slots{.routing = {},
                    .ordering = {},
                    .gpu = {},
                    .eviction = {},
                    .swap = {},
                    .prefetch = {},
                    .sharing = {},
                    .memory = {},
                    .batching = {},
                    .replicas = {},
                    .scaling = {},
                    .forecast = {},
                    .owning = {},
                    .binding = {}};
};
struct FunctionConfig {
  unsigned replicas = 2;
  Duration default_deadline = std::chrono::milliseconds(200);
  Duration default_timeout = std::chrono::seconds(30);
  unsigned queue = 4096;  // requests that may wait in a router
  cluster::ScalingEffect scaling_effect = cluster::ScalingEffect::kCarriedOut;
};
struct ImportConfig {
  Bytes memory = GiB(4);
  Duration time = std::chrono::seconds(60);
  gpu::ImportSandbox sandbox = gpu::ImportSandbox::kRequired;
  unsigned jobs = 2;  // at the same time
};
struct MachineConfig {
  std::string command{};  // gets and gives back machines; empty: none does
  cluster::ProvisioningLimits limits{.min_nodes = 1};
};
enum class LogFormat { kText, kJson };
struct LogConfig {
  spdlog::level::level_enum level = spdlog::level::info;
  LogFormat format = LogFormat::kText;
};
// How CAF runs the actors; chosen by `bench/run.sh caf-settings`.
enum class ActorScheduler { kSharing, kStealing };  // one queue for all threads, or one for each
struct ActorConfig {
  ActorScheduler scheduler = ActorScheduler::kSharing;
  unsigned threads = 0;            // 0: as many as there are cores, 2 at least
  unsigned throughput = 50;        // messages of one actor before others are run; 0: no limit
  unsigned middleman_workers = 0;  // threads that read other processes' messages; 0: the connection's own
};

struct DaemonConfig {
  MemberConfig member{};
  HttpConfig http{};
  SecurityConfig security{};
  TensorConfig tensors{};
  GpuConfig gpus{};
  gpu::WorkerSettings worker{.sms = 132,  // as many as an H100 has
                             .link_sharing = std::string(gpu::kDefaultLinkSharing),
                             .intermediates = std::string(gpu::kDefaultIntermediates),
                             .quota_window = std::chrono::seconds(1)};
  node::NodeTuning node{
      .isolation = {.runtimes = 0},  // 0: one when all functions share it, else three
      .scheduler = {.concurrency = node::kDefaultConcurrency, .swap_ahead = node::kDefaultSwapAhead},
      .measure = node::MeasureRule::kAdoption,
      .refill = node::RefillRule::kHotFirst,
      .keep_weights = node::KeepWeights::kOn};
  PolicyConfig policies{};
  FunctionConfig functions{};
  ImportConfig imports{};
  cluster::MembershipLimits membership{};
  Duration member_lease{};  // zero: none
  MachineConfig machines{};
  LogConfig log{};
  ActorConfig actors{};
  std::set<std::string, std::less<>> given{};  // keys of the options that the operator has set
};

// How an option is set from its text, and how its value is shown in such text.
struct OptionSetter {
  using Show = std::function<std::string(const DaemonConfig&)>;
  absl::Status operator()(const std::string& text, DaemonConfig& config) const { return set(text, config); }

  std::function<absl::Status(const std::string&, DaemonConfig&)> set;
  Show show;  // empty: the help says what holds when it is not given
};
// The heading of an option in --help. Options of kAdvanced are set by the file's block `advanced:` or by
// --set, not by a flag. Their defaults were measured or are those of the papers, and no user needs to turn
// them.
enum class OptionGroup { kMember, kSecurity, kDevices, kFunctions, kMachines, kOperation, kAdvanced };
inline constexpr const char* kOptionGroupNames[] = {"Member",   "Security",  "GPUs",    "Functions",
                                                    "Machines", "Operation", "Advanced"};
struct ConfigOption {
  OptionGroup group;
  std::string key;
  std::string help;
  bool is_switch = false;  // a flag without a value
  OptionSetter set;

  [[nodiscard]] bool is_advanced() const { return group == OptionGroup::kAdvanced; }
  // Said by the operator, whose word holds over the preset's (system_presets.hpp).
  absl::Status Give(const std::string& text, DaemonConfig& config) const {
    config.given.insert(key);
    return set(text, config);
  }
};
[[nodiscard]] const std::vector<ConfigOption>& ConfigOptions();

// Sets one option by "KEY=VALUE", of any group (--set). InvalidArgument for an unknown key (with the nearest
// known one) or a wrong value.
absl::Status SetOption(const std::string& assignment, DaemonConfig& config);

// Applies a YAML file: options by their keys, the advanced ones in a block `advanced:` of their own.
// InvalidArgument: "FILE:LINE: ..." for an unknown key (with the nearest known one), a key in the wrong
// block, a wrong value, or text that is not valid YAML; NotFound when the file does not exist.
absl::Status ApplyConfigFile(const std::string& path, DaemonConfig& config);
// The same for the text of a file that errors call `path`.
absl::Status ApplyConfig(const std::string& text, const std::string& path, DaemonConfig& config);
// In the order of the alphabet, which is that of a member's default name.
[[nodiscard]] std::vector<std::string> RoleNames(security::Roles roles);
// Without the brackets of an IPv6 address.
[[nodiscard]] std::string Unbracketed(const std::string& host);
// Of "host:port", without them too.
[[nodiscard]] std::string HostOf(const std::string& address);
// What follows from other options, and what contradicts them.
absl::Status CompleteConfig(DaemonConfig& config);

}  // namespace troupe::actors
