#include "actors/daemon/config.hpp"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "actors/daemon/option_setters.hpp"
#include "actors/daemon/system_presets.hpp"
#include "base/status.hpp"
#include "cluster/autoscaling/demand_forecast.hpp"
#include "cluster/autoscaling/scaling_policy.hpp"
#include "cluster/copies/replica_policy.hpp"
#include "cluster/routing_policy.hpp"
#include "gateway/cors.hpp"
#include "gpu/memory/memory_policy.hpp"
#include "gpu/sharing/sharing_policy.hpp"
#include "node/scheduling/policies/eviction_policy.hpp"
#include "node/scheduling/policies/gpu_policy.hpp"
#include "node/scheduling/scheduler_types.hpp"
#include "node/scheduling/topology.hpp"
#include "proto/isolation.hpp"
#include "scheduling/ordering_policy.hpp"

namespace troupe::actors {

namespace {

absl::Status SetRoles(const std::string& value, DaemonConfig& config) {
  static const std::set<std::string> kKnown = {"manager", "gateway", "node", "all"};
  config.member.roles.clear();
  config.member.embedded = false;
  for (const auto piece : absl::StrSplit(value, absl::ByAnyChar(", |"), absl::SkipEmpty())) {
    const std::string role(piece);
    if (!kKnown.contains(role)) return Wrong(role, "manager, gateway, node (several with commas) or all");
    if (role == "all") {
      config.member.roles = {"manager", "gateway", "node"};
      config.member.embedded = true;
    } else {
      config.member.roles.insert(role);
    }
  }
  return absl::OkStatus();
}

absl::Status SetLink(const std::string& value, DaemonConfig& config) {
  Bytes rate;
  if (!ParseBytes(value, rate)) return Wrong(value, "bytes per second such as 6GB, or 0 for no limit");
  config.gpus.link = BytesPerSecond{static_cast<double>(rate.count())};
  return absl::OkStatus();
}

absl::Status SetCorsOrigins(const std::string& value, DaemonConfig& config) {
  const std::vector<std::string> origins = absl::StrSplit(value, ',', absl::SkipWhitespace());
  return gateway::CheckCorsOrigins(config.http.cors_origins = origins);
}

std::string ShowLink(const DaemonConfig& config) {
  return absl::StrCat(config.gpus.link.value / 1e9, "GB");
}

absl::Status SetPreset(const std::string& value, DaemonConfig& config) {
  config.policies.preset = value;
  return FindSystemPreset(value).status();
}

absl::Status SetTopology(const std::string& value, DaemonConfig& config) {
  config.gpus.topology = value;
  if (value == "auto") return absl::OkStatus();
  return node::Topology::Parse(value).status();
}

}  // namespace

const std::vector<ConfigOption>& ConfigOptions() {
  using C = DaemonConfig;
  using W = gpu::WorkerSettings;
  using N = node::NodeTuning;
  using I = node::IsolationOptions;
  using S = node::SchedulerLimits;
  using M = cluster::MembershipLimits;
  using L = cluster::ProvisioningLimits;
  using Offer = SharedMemoryOffer;
  static const std::vector<ConfigOption> kOptions = {
      {OptionGroup::kMember,
       "role",
       "manager, gateway, node (several with commas), or all",
       false,
       {SetRoles, {}}},
      {OptionGroup::kMember, "name",
       "name of this member, no other one's in the cluster (default: host name and role)", false,
       Text({&C::member, &MemberConfig::name})},
      {OptionGroup::kMember, "data", "directory of everything that lasts", false,
       Text({&C::member, &MemberConfig::data})},
      {OptionGroup::kMember, "run", "directory of sockets (default: derived from data)", false,
       Text({&C::member, &MemberConfig::run})},
      {OptionGroup::kMember, "manager", "address of the cluster manager", false,
       Text({&C::member, &MemberConfig::manager})},
      {OptionGroup::kMember, "listen", "address of this member's actors; port 0: chosen by the system", false,
       Text({&C::member, &MemberConfig::listen})},
      {OptionGroup::kMember, "http", "address of the HTTP front", false,
       Text({&C::http, &HttpConfig::address})},
      {OptionGroup::kMember, "operations", "address of /metrics, /healthz and /loglevel", false,
       Text({&C::member, &MemberConfig::operations})},
      {OptionGroup::kMember, "host-id",
       "identity of this host: daemons with the same one share memory (default: the kernel's)", false,
       Text({&C::member, &MemberConfig::host_id})},
      {OptionGroup::kSecurity, "tls-dir",
       "directory of this daemon's certificate (troupe ca issue), for addresses that are not loopback", false,
       Text({&C::security, &SecurityConfig::tls_dir})},
      {OptionGroup::kSecurity, "http-tls-certificate",
       "PEM file with the certificate that HTTP clients see, then its chain: the HTTP front speaks HTTPS",
       false, Text({&C::http, &HttpConfig::tls_certificate})},
      {OptionGroup::kSecurity, "http-tls-key",
       "PEM file with the certificate's key, readable by this user alone", false,
       Text({&C::http, &HttpConfig::tls_key})},
      {OptionGroup::kSecurity,
       "http-cors-origins",
       "web pages that may read the HTTP front's answers: origins such as https://app.example, with commas, "
       "or *",
       false,
       {SetCorsOrigins, {}}},
      {OptionGroup::kSecurity, "insecure-network",
       "allow addresses that are not loopback without certificates", true,
       Switch({&C::security, &SecurityConfig::insecure_network})},
      {OptionGroup::kSecurity, "tensor-network",
       "how tensors travel between hosts: stream (TCP, encrypted with --tls-dir), or ucx (RDMA; not encrypted, "
       "for networks of the cluster alone); the same for all daemons",
       false,
       Choice<TensorNetwork>({&C::tensors, &TensorConfig::network},
                             {{"stream", TensorNetwork::kStream}, {"ucx", TensorNetwork::kUcx}})},
      {OptionGroup::kDevices, "device", "virtual GPUs, or the machine's own (cuda, from number 0 on)", false,
       OneOf({&C::gpus, &GpuConfig::device}, {"virtual", "cuda"})},
      {OptionGroup::kDevices, "gpus", "GPUs of a node", false, Number({&C::gpus, &GpuConfig::count}, 1, 64)},
      {OptionGroup::kDevices, "gpu-memory",
       "memory of each virtual GPU; of a real one what workers take of it at their start", false,
       Size({&C::gpus, &GpuConfig::memory})},
      {OptionGroup::kDevices,
       "link-bandwidth",
       "bytes per second between host and each virtual GPU; 0: no limit",
       false,
       {SetLink, ShowLink}},
      {OptionGroup::kDevices, "compute", "real (results by oneDNN) or timed (as long as a profile says)",
       false, OneOf({&C::worker, &W::compute}, {"real", "timed"})},
      {OptionGroup::kDevices, "profile",
       "file of times for timed compute, and of how many of the SMs a model can use", false,
       Text({&C::worker, &W::profile})},
      {OptionGroup::kDevices, "worker-threads", "OpenMP threads of each GPU worker", false,
       Number({&C::worker, &W::threads}, 1, 256)},
      {OptionGroup::kDevices, "host-region", "host memory for models; the coldest beyond it are on disk only",
       false, Size({&C::gpus, &GpuConfig::host_region})},
      {OptionGroup::kDevices,
       "topology",
       "switches and links of the GPUs: switch:0-1,link:0-1=25GB, or v100x4, or "
       "auto (as the driver of real GPUs says)",
       false,
       {SetTopology, Shown(Field<std::string>({&C::gpus, &GpuConfig::topology}))}},
      {OptionGroup::kDevices, "isolation",
       "with whom functions that do not say share a GPU worker: shared (all), tenant, workflow, function",
       false,
       Choice<proto::Isolation>({&C::node, &N::isolation, &I::mode},
                                {proto::kIsolations.begin(), proto::kIsolations.end()})},
      {OptionGroup::kDevices, "runtimes",
       "workers of each GPU, which share its memory evenly; 0: 1 when shared, else 3", false,
       Number({&C::node, &N::isolation, &I::runtimes}, 0, 16)},
      {OptionGroup::kFunctions, "replicas", "host copies of each model, at least", false,
       Number({&C::functions, &FunctionConfig::replicas}, 1, 64)},
      {OptionGroup::kFunctions, "default-deadline", "target of a function that names none", false,
       Time({&C::functions, &FunctionConfig::default_deadline})},
      {OptionGroup::kFunctions, "default-timeout", "expiry of a request that names none", false,
       Time({&C::functions, &FunctionConfig::default_timeout})},
      {OptionGroup::kFunctions, "state-write-back",
       "when functions' device state is written back: run (before a run is answered), or evict (when its "
       "model leaves the GPU; a worker that dies takes the runs since then with it)",
       false,
       Choice<node::StateWriteBack>(
           {&C::node, &N::state_write_back},
           {{"run", node::StateWriteBack::kRun}, {"evict", node::StateWriteBack::kEvict}})},
      {OptionGroup::kFunctions, "import-sandbox",
       "required: no import where the kernel allows no jail; best-effort: import with what it allows", false,
       OneOf({&C::imports, &ImportConfig::sandbox}, {"required", "best-effort"})},
      {OptionGroup::kFunctions,
       "policy",
       "preset: policies, or a published system with the options that make it",
       false,
       {SetPreset, Shown(Field<std::string>({&C::policies, &PolicyConfig::preset}))}},
      {OptionGroup::kMachines, "provision-command",
       "shell command that gets and gives back machines: run with replace NODE, add, drain NODE", false,
       Text({&C::machines, &MachineConfig::command})},
      {OptionGroup::kMachines, "min-nodes", "nodes below which one is added, and none drained", false,
       Number({&C::machines, &MachineConfig::limits, &L::min_nodes}, 0, 10'000)},
      {OptionGroup::kMachines, "max-nodes",
       "nodes beyond which none is added by load; 0: load neither adds nor drains", false,
       Number({&C::machines, &MachineConfig::limits, &L::max_nodes}, 0, 10'000)},
      {OptionGroup::kOperation, "log-level", "trace, debug, info, warn, error or off", false,
       OneOf({&C::log, &LogConfig::level}, {"trace", "debug", "info", "warn", "error", "off"})},
      {OptionGroup::kOperation, "allow-faults",
       "let operators and tests inject faults here (troupe chaos run); never where it matters", true,
       Switch({&C::security, &SecurityConfig::allow_faults})},
      {OptionGroup::kAdvanced, "bin",
       "directory of troupe-gpu-worker and troupe-import (default: this program's, or ../libexec/troupe from "
       "there)",
       false, Text({&C::member, &MemberConfig::bin})},
      {OptionGroup::kAdvanced, "http-connections",
       "connections of HTTP clients at a time; beyond them only probes are answered", false,
       Number({&C::http, &HttpConfig::connections}, 1, 1'000'000)},
      {OptionGroup::kAdvanced, "http-threads", "threads of the HTTP front", false,
       Number({&C::http, &HttpConfig::threads}, 1, 64)},
      {OptionGroup::kAdvanced, "http-shared-memory",
       "clients of this machine may name shared memory: off, on, or loopback (where --http is)", false,
       Choice<Offer>({&C::http, &HttpConfig::shared_memory},
                     {{"off", Offer::kOff}, {"loopback", Offer::kLoopback}, {"on", Offer::kOn}})},
      {OptionGroup::kAdvanced, "arena", "shared memory for tensors that this process sends", false,
       Size({&C::tensors, &TensorConfig::arena})},
      {OptionGroup::kAdvanced, "arena-root",
       "directory below which arenas of other daemons of this user are read", false,
       Text({&C::tensors, &TensorConfig::arena_root})},
      {OptionGroup::kAdvanced, "lease", "how long a GPU worker waits for its daemon to come back", false,
       TimeOrZero({&C::worker, &W::lease})},
      {OptionGroup::kAdvanced, "huge-pages", "auto (the host region has them where they can be had) or off",
       false,
       Choice<HugePages>({&C::gpus, &GpuConfig::huge_pages},
                         {{"auto", HugePages::kAuto}, {"off", HugePages::kOff}})},
      {OptionGroup::kAdvanced, "routing", "policy of the routing slot", false,
       Policy(&PolicyNames::routing, cluster::FindRoutingPolicy)},
      {OptionGroup::kAdvanced, "ordering", "policy of the ordering slot", false,
       Policy(&PolicyNames::ordering, FindOrderingPolicy)},
      {OptionGroup::kAdvanced, "gpu", "policy of the gpu slot", false,
       Policy(&PolicyNames::gpu, node::FindGpuPolicy)},
      {OptionGroup::kAdvanced, "eviction", "policy of the eviction slot", false,
       Policy(&PolicyNames::eviction, node::FindEvictionPolicy)},
      {OptionGroup::kAdvanced, "binding",
       "policy of the binding slot: late, fixed or keep-alive (the last two: with gpu bound)", false,
       Policy(&PolicyNames::binding, node::FindBindingPolicy)},
      {OptionGroup::kAdvanced, "prefetch",
       "when models come to GPUs: asked (for a request), ahead (also ahead of requests, while nothing else "
       "needs the GPU or its link), or forecast (and what is asked for at regular intervals before its next "
       "request)",
       false, Policy(&PolicyNames::prefetch, node::FindPrefetchPolicy)},
      {OptionGroup::kAdvanced, "batching",
       "which waiting requests of a function one run answers: off (each has its own), greedy (what waits, where "
       "it makes none late), or slack (and they wait for company as far as their deadlines let them, while the "
       "GPU is busy)",
       false, Policy(&PolicyNames::batching, node::FindBatchingPolicy)},
      {OptionGroup::kAdvanced, "replica-policy",
       "how many nodes have a host copy of a model: demand (more than --replicas, where its load needs them) "
       "or fixed",
       false, Policy(&PolicyNames::replicas, cluster::FindReplicaPolicy)},
      {OptionGroup::kAdvanced, "scaling",
       "how functions whose quota_request is auto follow their load: troupe (instances grow first, then more are "
       "added), fast-scaler (FaST-GShare's Algorithm 1) or hpa (Kubernetes' rule)",
       false, Policy(&PolicyNames::scaling, cluster::FindScalingPolicy)},
      {OptionGroup::kAdvanced, "forecast",
       "how their load is foreseen: holt (level and trend), last (as it was) or season (as the day before)",
       false, Policy(&PolicyNames::forecast, cluster::FindForecast)},
      {OptionGroup::kAdvanced, "owning",
       "whether they own parts of GPUs at all: by-cost (while that costs less than binding them late), always "
       "(while they have requests) or never",
       false, Policy(&PolicyNames::owning, cluster::FindOwningRule)},
      {OptionGroup::kAdvanced, "scaling-dry-run",
       "on: they get no part of a GPU, and 'troupe autoscale status' shows what they would get; off", false,
       Choice<bool>({&C::functions, &FunctionConfig::scaling_dry_run}, {{"off", false}, {"on", true}})},
      {OptionGroup::kAdvanced, "swap", "policy of the swap slot: grouped, per-tensor, whole or pageable",
       false, Policy(&PolicyNames::swap, gpu::FindSwapPolicy)},
      {OptionGroup::kAdvanced, "link-sharing",
       "whose blocks go first on a link: deadline, shared or exclusive", false,
       Text({&C::worker, &W::link_sharing})},
      {OptionGroup::kAdvanced, "sharing",
       "how the runs on one GPU share it: fast (quotas of time, shares of the SMs), fast-bypass (what fits "
       "passes what does not), time-sharing (quotas, one run at a time), exclusive (one function at a time), "
       "racing (no limits)",
       false, Policy(&PolicyNames::sharing, gpu::FindSharingPolicy)},
      {OptionGroup::kAdvanced, "intermediates",
       "where outputs of a workflow's steps wait for their readers: elastic (on the GPU, while its memory is idle), "
       "no-pressure, no-movement, static (a part of the GPU) or host-only; docs/dataplane.md",
       false, Text({&C::worker, &W::intermediates})},
      {OptionGroup::kAdvanced, "quota-window", "the time of which functions have their quotas", false,
       Time({&C::worker, &W::quota_window}, gpu::kShortestWindow, gpu::kLongestWindow)},
      {OptionGroup::kAdvanced, "memory-policy",
       "how device memory is handed out: fine-resilient, fine, static, block-cache, device-malloc", false,
       Policy(&PolicyNames::memory, gpu::FindMemoryPolicy)},
      {OptionGroup::kAdvanced, "addresses",
       "where weights lie on a GPU: adjacent, or mapped block by block to one address that is the model's on "
       "every GPU",
       false, OneOf({&C::worker, &W::addresses}, {"adjacent", "mapped"})},
      {OptionGroup::kAdvanced, "cuda-graphs",
       "on real GPUs, runs that come again replayed from a recording: on or off", false,
       OneOf({&C::worker, &W::cuda_graphs}, {"on", "off"})},
      {OptionGroup::kAdvanced, "cuda-kernels",
       "our own kernels on real GPUs: whole, or persistent (few blocks that stay)", false,
       OneOf({&C::worker, &W::cuda_kernels}, {"whole", "persistent"})},
      {OptionGroup::kAdvanced, "refill",
       "what a dead GPU worker held: hot-first: it comes to other GPUs and the new worker by itself, into "
       "free "
       "room, what is asked for most first; on-demand: when it is asked for",
       false,
       Choice<node::RefillRule>({&C::node, &N::refill}, {{"hot-first", node::RefillRule::kHotFirst},
                                                         {"on-demand", node::RefillRule::kOnDemand}})},
      {OptionGroup::kAdvanced, "keep-weights",
       "what lies on a virtual GPU when its worker dies: on: the next worker takes the weights over, each model "
       "once it was found equal to its host copy, and does not measure the link again; off: it begins anew",
       false,
       Choice<node::KeepWeights>({&C::node, &N::keep_weights},
                                 {{"on", node::KeepWeights::kOn}, {"off", node::KeepWeights::kOff}})},
      {OptionGroup::kAdvanced, "measure",
       "when a node learns what swapping costs a model: adoption (by runs of zeros while it is idle) or "
       "requests",
       false,
       Choice<node::MeasureRule>({&C::node, &N::measure}, {{"adoption", node::MeasureRule::kAdoption},
                                                           {"requests", node::MeasureRule::kRequests}})},
      {OptionGroup::kAdvanced, "credits-per-gpu", "requests in flight that a node grants per GPU", false,
       Number({&C::node, &N::credits_per_gpu}, 1, 1024)},
      {OptionGroup::kAdvanced, "state-memory", "the most host memory for functions' device states", false,
       Size({&C::node, &N::state_memory})},
      {OptionGroup::kAdvanced, "swap-ahead",
       "requests that a GPU is given at a time: one runs, the models of the others come meanwhile; 1: "
       "nothing "
       "is swapped ahead",
       false, Number({&C::node, &N::scheduler, &S::swap_ahead}, 1, 64)},
      {OptionGroup::kAdvanced, "concurrency",
       "runs without a share of the SMs that compute on one GPU at a time", false,
       Number({&C::node, &N::scheduler, &S::concurrency}, 1, 64)},
      {OptionGroup::kAdvanced, "gpu-kind",
       "which GPUs are alike, for what is measured on them: one name, or one of each GPU with commas (default: "
       "virtual, or the name that the driver has)",
       false, Text({&C::gpus, &GpuConfig::kind})},
      {OptionGroup::kAdvanced, "gpu-sms", "SMs of each virtual GPU, of which functions can have a share",
       false, Number({&C::worker, &W::sms}, 1, 1024)},
      {OptionGroup::kAdvanced, "by-layer",
       "idle: a model that only its request waits for passes through a full GPU layer by layer and evicts "
       "nothing; off",
       false,
       Choice<node::ByLayer>({&C::node, &N::scheduler, &S::by_layer},
                             {{"off", node::ByLayer::kOff}, {"idle", node::ByLayer::kIdle}})},
      {OptionGroup::kAdvanced, "broadcast",
       "burst: a model that one GPU loads from the host comes to others from that one as it arrives, over "
       "the "
       "links between them; off",
       false,
       Choice<node::BroadcastRule>(
           {&C::node, &N::scheduler, &S::broadcast},
           {{"off", node::BroadcastRule::kOff}, {"burst", node::BroadcastRule::kBurst}})},
      {OptionGroup::kAdvanced, "runtime-idle",
       "an isolated worker that did nothing for this long is replaced by a warm one", false,
       Time({&C::node, &N::isolation, &I::idle})},
      {OptionGroup::kAdvanced, "hang",
       "a busy worker is killed when its main loop, a copy or a run stands still for this long", false,
       Time({&C::gpus, &GpuConfig::hang})},
      {OptionGroup::kAdvanced, "heartbeat", "between a member's heartbeats", false,
       Time({&C::membership, &M::heartbeat})},
      {OptionGroup::kAdvanced, "suspect", "silence after which a member is suspected", false,
       Time({&C::membership, &M::suspect_after})},
      {OptionGroup::kAdvanced, "dead", "silence after which a member is dead", false,
       Time({&C::membership, &M::dead_after})},
      {OptionGroup::kAdvanced, "member-lease",
       "silence of the manager after which a member takes nothing new; 0s: only functions with state stop",
       false, TimeOrZero(&C::member_lease)},
      {OptionGroup::kAdvanced, "replace-after", "how long a node is dead before it is replaced", false,
       Time({&C::machines, &MachineConfig::limits, &L::replace_after})},
      {OptionGroup::kAdvanced, "add-above", "requests for each GPU above which a node is added", false,
       Decimal({&C::machines, &MachineConfig::limits, &L::add_above}, 0, 1e6)},
      {OptionGroup::kAdvanced, "drain-below", "requests for each GPU below which a node is drained", false,
       Decimal({&C::machines, &MachineConfig::limits, &L::drain_below}, 0, 1e6)},
      {OptionGroup::kAdvanced, "load-hold",
       "how long the load stays above or below before a node is added or drained", false,
       Time({&C::machines, &MachineConfig::limits, &L::hold})},
      {OptionGroup::kAdvanced, "load-settle",
       "how long after a node was added or drained by load the next one is", false,
       TimeOrZero({&C::machines, &MachineConfig::limits, &L::settle})},
      {OptionGroup::kAdvanced, "queue", "requests that may wait in a router", false,
       Number({&C::functions, &FunctionConfig::queue}, 1, 10'000'000)},
      {OptionGroup::kAdvanced, "stop-grace", "how long a stopping daemon lets requests finish", false,
       TimeOrZero({&C::member, &MemberConfig::stop_grace})},
      {OptionGroup::kAdvanced, "import-memory", "memory limit of an import", false,
       Size({&C::imports, &ImportConfig::memory})},
      {OptionGroup::kAdvanced, "import-time", "processor time limit of an import", false,
       Time({&C::imports, &ImportConfig::time})},
      {OptionGroup::kAdvanced, "import-jobs",
       "imports at the same time; from 2 on, one is kept for small files of other clients", false,
       Number({&C::imports, &ImportConfig::jobs}, 1, 64)},
      {OptionGroup::kAdvanced, "log-format", "text or json", false,
       Choice<LogFormat>({&C::log, &LogConfig::format},
                         {{"text", LogFormat::kText}, {"json", LogFormat::kJson}})},
      {OptionGroup::kAdvanced, "actor-scheduler",
       "sharing (one queue for all threads) or stealing (a queue per thread)", false,
       Choice<ActorScheduler>(
           {&C::actors, &ActorConfig::scheduler},
           {{"sharing", ActorScheduler::kSharing}, {"stealing", ActorScheduler::kStealing}})},
      {OptionGroup::kAdvanced, "actor-threads", "threads of the actors; 0: as many as cores, 2 at least",
       false, Number({&C::actors, &ActorConfig::threads}, 0, 1024)},
      {OptionGroup::kAdvanced, "actor-throughput",
       "messages of one actor before others get their turn; 0: no limit", false,
       Number({&C::actors, &ActorConfig::throughput}, 0, 1'000'000)},
      {OptionGroup::kAdvanced, "middleman-workers",
       "threads that read messages of other processes; 0: the connections' own thread", false,
       Number({&C::actors, &ActorConfig::middleman_workers}, 0, 64)},
  };
  return kOptions;
}

}  // namespace troupe::actors
