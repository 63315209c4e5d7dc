// The daemon's configuration: one table of options; each is a key of the YAML file and a flag of the same
// name.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/policy.hpp"
#include "base/units.hpp"
#include "gpu/swap/swap_policy.hpp"
#include "node/scheduling/scheduler_types.hpp"

namespace troupe::actors {

struct DaemonConfig {
  std::set<std::string> roles;  // manager, gateway, node
  bool embedded = false;        // --role all: one process, and workers that end with it
  std::string name;             // of this member; default: from the host's name and the role
  std::string data = "troupe-data";
  std::string run;  // run directory for sockets; default: derived from `data`
  std::string bin;  // where troupe-gpu-worker and troupe-import are; default: beside this program
  std::string manager = "127.0.0.1:7400";
  std::string listen = "127.0.0.1:0";   // actors of a node or gateway
  std::string http = "127.0.0.1:8000";  // a gateway's HTTP front
  std::string http_tls_certificate;     // PEM files; empty: it speaks plain HTTP
  std::string http_tls_key;
  std::vector<std::string> http_cors_origins;  // of web pages that may read a gateway's answers
  std::string operations = "127.0.0.1:0";      // /metrics, /healthz, /loglevel
  bool insecure_network = false;
  std::string
      tls_dir;  // ca.pem, certificate.pem, key.pem, revoked.pem; empty: connections over TCP are plain
  unsigned http_threads = 1;
  unsigned http_connections = 4096;
  Bytes arena = MiB(256);  // of tensors that this process sends
  // Below which directory the sockets of other daemons' arenas may lie; the kernel sees to it that they are
  // our user's.
  std::string arena_root = "/";
  // Daemons with the same one share memory; others fetch over the network. Default: what the kernel says.
  std::string host_id;
  std::string tensor_network = "stream";  // how tensors travel between hosts: over TCP and TLS; or ucx

  std::string device = "virtual";  // or cuda: the driver's GPUs, from number 0 on
  unsigned gpus = 1;
  Bytes gpu_memory = GiB(1);
  BytesPerSecond link{6e9};
  std::string compute = "real";
  std::string profile;
  unsigned worker_threads = 1;
  Duration lease = std::chrono::seconds(30);
  Bytes host_region = GiB(4);
  std::string huge_pages = "auto";  // auto: for the host region where they can be had; off
  bool allow_faults = false;
  std::string isolation = "shared";  // of functions that do not say: shared, tenant, workflow, function
  unsigned runtimes = 0;             // workers of each GPU; 0: one when shared, else three
  Duration runtime_idle = std::chrono::minutes(10);
  std::string link_sharing{gpu::kDefaultLinkSharing};
  std::string refill = "hot-first";  // what a dead worker held; on-demand: it comes when it is asked for
  std::string measure = "adoption";  // adoption: by trial runs on an idle node; requests: by what comes
  std::string addresses =
      "adjacent";                  // of weights on a GPU; mapped: block by block to one of the model's own
  std::string cuda_graphs = "on";  // replay on real GPUs what they have run before
  std::string cuda_kernels = "whole";  // our own on real GPUs; persistent: few blocks that stay

  std::string state_write_back = "run";  // run: before a run with state is answered; evict: with its model
  Bytes state_memory = MiB(256);         // of images of functions' states

  std::string topology;  // of the GPUs (node/scheduling/topology.hpp); auto: as the driver says

  PolicyNames policies;  // the preset's, and over them the slots that were named
  std::string preset = "troupe";
  // Slots named one by one, wherever they stand beside the preset; empty: not named.
  PolicyNames slots{.routing = {},
                    .ordering = {},
                    .gpu = {},
                    .eviction = {},
                    .swap = {},
                    .prefetch = {},
                    .memory = {},
                    .binding = {}};
  unsigned replicas = 2;
  unsigned credits_per_gpu = 8;
  unsigned swap_ahead = node::kDefaultSwapAhead;
  unsigned concurrency = 1;
  unsigned gpu_sms = 132;  // of a virtual GPU: as many as an H100 has
  std::string by_layer = "off";
  std::string broadcast = "off";
  Duration hang = std::chrono::seconds(5);
  Duration heartbeat = std::chrono::milliseconds(100);
  Duration suspect = std::chrono::milliseconds(400);
  Duration dead = std::chrono::milliseconds(800);
  Duration member_lease{};        // zero: none
  std::string provision_command;  // empty: none
  Duration replace_after = std::chrono::seconds(30);
  unsigned min_nodes = 1;
  unsigned max_nodes = 0;  // 0: none is added or drained by load
  Duration default_timeout = std::chrono::seconds(30);
  unsigned queue = 4096;
  Duration default_deadline = std::chrono::milliseconds(200);
  Duration stop_grace = std::chrono::seconds(5);
  Bytes import_memory = GiB(4);
  Duration import_time = std::chrono::seconds(60);
  std::string import_sandbox = "required";
  unsigned import_jobs = 2;  // at the same time

  std::string log_level = "info";
  std::string log_format = "text";

  // How CAF runs the actors; chosen by `bench/run.sh caf-settings`.
  std::string actor_scheduler = "sharing";
  unsigned actor_threads = 0;      // 0: as many as there are cores, 2 at least
  unsigned actor_throughput = 50;  // messages of one actor before others get their turn; 0: no limit
  unsigned middleman_workers = 0;  // threads that read other processes' messages; 0: the connection's own
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
};
[[nodiscard]] const std::vector<ConfigOption>& ConfigOptions();

// Sets one option by "KEY=VALUE", of any group (--set). InvalidArgument for an unknown key (with the nearest
// known one) or a wrong value.
absl::Status SetOption(const std::string& assignment, DaemonConfig& config);

// Applies a YAML file: options by their keys, the advanced ones in a block `advanced:` of their own.
// InvalidArgument: "FILE:LINE: ..." for an unknown key (with the nearest known one), a key in the wrong
// block, a wrong value, or text that is not valid YAML; NotFound when there is no such file.
absl::Status ApplyConfigFile(const std::string& path, DaemonConfig& config);
// The same for the text of a file that errors call `path`.
absl::Status ApplyConfig(const std::string& text, const std::string& path, DaemonConfig& config);
// Without the brackets of an IPv6 address.
[[nodiscard]] std::string Unbracketed(const std::string& host);
// Of "host:port", without them too.
[[nodiscard]] std::string HostOf(const std::string& address);
// What follows from other options, and what contradicts them.
absl::Status CompleteConfig(DaemonConfig& config);

}  // namespace troupe::actors
