#include <spdlog/spdlog.h>

#include <algorithm>
#include <caf/scoped_actor.hpp>
#include <filesystem>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "actors/daemon/driver_told.hpp"
#include "actors/daemon/gauges.hpp"
#include "actors/daemon/membership.hpp"
#include "actors/daemon/node_files.hpp"
#include "actors/daemon/process_faults.hpp"
#include "actors/daemon/roles.hpp"
#include "actors/daemon/swap_gauges.hpp"
#include "actors/daemon/usage_gauges.hpp"
#include "actors/daemon/vital.hpp"
#include "actors/daemon/worker_refusals.hpp"
#include "actors/node/cache.hpp"
#include "actors/node/node_controller.hpp"
#include "actors/seams/process_worker_link.hpp"
#include "actors/seams/stored_model_repository.hpp"
#include "base/status.hpp"
#include "node/runtimes/isolation.hpp"
#include "storage/durable_file.hpp"
#include "transport/local_channel.hpp"

namespace troupe::actors {

namespace {

class NodeRole final : public Role {
 public:
  NodeRole(Common& common, std::shared_ptr<gpu::GpuWatch> watch, node::Topology topology,
           transport::LinkBuckets links, std::unique_ptr<gpu::LinkReader> reader)
      : common_(common),
        watch_(std::move(watch)),
        topology_(std::move(topology)),
        links_(std::move(links)),
        reader_(std::move(reader)),
        gauges_(common.registry) {}
  ~NodeRole() override {
    caf::anon_send_exit(member_, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(controller_, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(cache_, caf::exit_reason::user_shutdown);
    // Its executors end a little later; their links keep the reader.
    caf::scoped_actor self(*common_.system);
    self->wait_for(caf::actor_cast<caf::actor>(controller_));
    member_ = MemberActor();
    controller_ = NodeControllerActor();
    cache_ = CacheActor();
  }

  absl::Status Start(const std::string& operations) {
    const auto& config = common_.config;
    const bool huge_pages = config.gpus.huge_pages == HugePages::kAuto;
    TROUPE_ASSIGN_OR_RETURN(host_, storage::HostSegments::Create({config.member.name, config.gpus.host_region,
                                                                  huge_pages, Isolated()}));
    if (huge_pages && !host_->huge_pages())
      spdlog::debug("the host region is made of normal pages: the system has no huge ones for {}",
                    FormatBytes(config.gpus.host_region));
    StoredModelRepository::Options repository;
    repository.import_program = config.member.bin + "/troupe-import";
    repository.work_directory = config.member.data + "/fetch";
    // Real GPUs run canonical weights.
    if (config.gpus.device == "virtual") {
      TROUPE_ASSIGN_OR_RETURN(repository.pack_target, gpu::AskPackTarget(repository.import_program));
    }
    repository_ = std::make_shared<StoredModelRepository>(std::move(repository), *common_.objects,
                                                          host_.get(), *common_.channel);
    CacheOptions cache;
    cache.manager = common_.manager;
    spdlog::info(
        "policies: ordering {}, gpu {}, eviction {}, copies {}, binding {}, swap {}, link sharing {}, memory "
        "{}",
        config.policies.chosen.ordering, config.policies.chosen.gpu, config.policies.chosen.eviction,
        config.policies.chosen.prefetch,
        config.policies.chosen.binding.empty() ? "late" : config.policies.chosen.binding,
        config.policies.chosen.swap, config.worker.link_sharing, config.policies.chosen.memory);
    cache_ = SpawnCache(*common_.system, std::move(cache), *repository_, *common_.directory);
    TROUPE_ASSIGN_OR_RETURN(auto states, States());
    MemberOptions member;
    TROUPE_RETURN_IF_ERROR(TieToCluster(common_, true, member));
    lease_ = member.lease;
    auto options = Options();
    options.lease = lease_;
    options.states = std::move(states);
    TROUPE_ASSIGN_OR_RETURN(controller_, SpawnNodeController(*common_.system, std::move(options), cache_));
    TROUPE_ASSIGN_OR_RETURN(address_, common_.Publish(controller_, config.member.listen));
    auto& record = member.record;
    record.set_name(config.member.name);
    record.set_kind(proto::MEMBER_NODE);
    record.set_address(address_);
    record.set_operations(operations);
    record.set_host_region_bytes(config.gpus.host_region.count());
    record.set_host(config.member.host_id);
    member_ = SpawnNodeMember(*common_.system, std::move(member), controller_, *common_.directory);
    EndProcessWith(cache_, "the node's cache");
    EndProcessWith(controller_, "the node controller");  // executors are linked with it
    EndProcessWith(member_, "the node's member");
    AllowFaultsIn(common_, member_);
    return absl::OkStatus();
  }

  [[nodiscard]] std::string Describe() const override {
    return absl::StrCat("node '", common_.config.member.name, "' with ", common_.config.gpus.count,
                        " GPUs at ", address_);
  }

  [[nodiscard]] absl::Status Health() override {
    if (ready_gpus_ == 0) {
      const std::lock_guard lock(problems_mutex_);
      return absl::UnavailableError(absl::StrCat("no GPU worker is up", problems_));
    }
    // A node that has lost its manager goes on with what it knows; a node that never had a manager knows
    // nothing.
    if (!lease_->HasBegun()) {
      return absl::UnavailableError(
          absl::StrCat("this node has not joined a cluster yet: is the cluster manager running at ",
                       common_.manager, "?"));
    }
    return absl::OkStatus();
  }

  void Measure() override {
    caf::scoped_actor self(*common_.system);
    self->request(controller_, kAskTimeout, proto::DescribeNode())
        .receive([this](const proto::NodeDescription& node) { Show(node); }, [](const caf::error&) {});
  }

  // Nothing new enters; what runs finishes. What is left then is answered by the routers' retries elsewhere.
  void Stop(Duration grace) override {
    caf::scoped_actor self(*common_.system);
    proto::DrainNode drain;
    drain.set_drain(true);
    self->request(controller_, kAskTimeout, std::move(drain))
        .receive([](const proto::DrainReply&) {}, [](const caf::error&) {});
    const auto end = std::chrono::steady_clock::now() + grace;
    while (std::chrono::steady_clock::now() < end && Busy(self))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    self->send(member_, proto::LeaveRequest());
    self->wait_for(caf::actor_cast<caf::actor>(member_));
  }

 private:
  bool Busy(caf::scoped_actor& self) {
    bool busy = false;
    self->request(controller_, kAskTimeout, proto::DescribeNode())
        .receive(
            [&](const proto::NodeDescription& node) {
              busy = node.load().queued() + node.load().running() > 0;
            },
            [](const caf::error&) {});
    return busy;
  }

  NodeOptions Options() {
    const auto& config = common_.config;
    NodeOptions options;
    options.name = config.member.name;
    options.policies = config.policies.chosen;
    options.channel = common_.channel.get();
    // The other half is for what this process sends.
    options.remote_inputs.bytes = Bytes(config.tensors.arena.count() / 2);
    options.on_event = [this](const std::string& kind, const std::string& message) {
      if (kind == "runtime-assigned") ++assigned_;
      if (kind == "runtime-reclaimed") ++reclaimed_;
      if (kind == "run-cut") ++cut_;
      spdlog::log(LogLevelOf(kind), "{}: {}", kind, message);
    };
    static_cast<node::NodeTuning&>(options) = config.node;
    options.copies.region = host_->usage().capacity;
    options.topology = topology_;
    options.costs.link = config.gpus.link;
    KeepNodeFiles(config.member.data, config.member.run, common_.pool, options);
    options.executor.supervision.hang_timeout = config.gpus.hang;
    for (unsigned i = 0; i < config.gpus.count; ++i)
      options.gpus.push_back({absl::StrCat(config.gpus.device, ":", i), config.gpus.memory});
    options.scheduler.isolated = Isolated();
    WorkerSite site{reader_,
                    common_.pool,
                    RegionOf(),
                    links_.fd(),
                    config.tensors.arena_root,
                    common_.incarnation,
                    config.member.host_id,
                    "",
                    nullptr};
    if (common_.remote != nullptr) {
      site.endpoint = common_.remote->endpoint();
      site.exports = common_.remote->exports();
    }
    options.make_link = [site, watch = watch_, isolated = Isolated(), refused = worker_refusals_,
                         &config](std::uint32_t index) {
      ProcessWorkerOptions worker;
      worker.refused = [refused, index](std::uint64_t count) { refused->Set(index, count); };
      const auto gpu = index / config.node.isolation.runtimes;
      auto& command = worker.command;
      command.program = config.member.bin + "/troupe-gpu-worker";
      command.device = absl::StrCat(config.gpus.device, ":", gpu);
      // A worker that outlived a daemon with other runtimes has no owner, and ends with its lease.
      const auto runtime = isolated ? absl::StrCat(".", config.node.isolation.runtimes, "-",
                                                   index % config.node.isolation.runtimes)
                                    : std::string();
      command.socket = absl::StrCat(config.member.run, "/worker-", gpu, runtime, ".sock");
      command.node = config.member.name;
      command.gpu = gpu;
      static_cast<gpu::WorkerSettings&>(command) = config.worker;
      worker.watch = {config.gpus.hang, config.gpus.hang, std::max(config.gpus.hang, worker.watch.prepare)};
      worker.memory = Bytes(config.gpus.memory.count() / config.node.isolation.runtimes);
      if (watch != nullptr) worker.problem = [watch, gpu] { return watch->ProblemOf(gpu); };
      if (config.gpus.device != "virtual")
        command.quota = worker.memory;  // a virtual GPU's memory is all there is
      return MakeProcessWorkerLink(site, std::move(worker));
    };
    return options;
  }

  // Images of functions' states: an arena of their own, and files that outlive this process.
  absl::StatusOr<StateStoreOptions> States() {
    const auto& config = common_.config;
    StateStoreOptions states;
    states.capacity = config.node.state_memory;
    states.directory = config.member.data + "/states";
    TROUPE_RETURN_IF_ERROR(storage::MakeDirectories(states.directory));
    states.pool = &common_.pool;
    transport::LocalChannel::Options arena;
    arena.name = absl::StrCat("troupe-states-", config.member.name);
    arena.socket = absl::StrCat(config.member.run, "/states-", config.member.name, ".sock");
    arena.directories = {config.member.run, config.tensors.arena_root};
    // A state is there twice while it is replaced. Pages that are not used are not there.
    arena.capacity = config.node.state_memory * 2;
    arena.host = config.member.host_id;
    arena.refusals = common_.arena_refusals;
    TROUPE_ASSIGN_OR_RETURN(states.channel, transport::LocalChannel::Create(std::move(arena)));
    return states;
  }

  [[nodiscard]] bool Isolated() const {
    return common_.config.node.isolation.runtimes > 1 ||
           common_.config.node.isolation.mode != proto::ISOLATION_SHARED;
  }

  // A worker that serves no key yet maps no models.
  std::function<absl::StatusOr<std::shared_ptr<transport::HostRegion>>(const std::string&)> RegionOf() {
    // An adoption may be under way on the pool when this role ends: it keeps what it asks.
    return [repository = repository_, host = host_, isolated = Isolated()](
               const std::string& runtime) -> absl::StatusOr<std::shared_ptr<transport::HostRegion>> {
      TROUPE_ASSIGN_OR_RETURN(const auto serves, node::ParseRuntimeName(runtime, isolated));
      return repository->RegionOf(!serves.assigned, serves.key);
    };
  }

  void Show(const proto::NodeDescription& node) {
    const auto& load = node.load();
    const Gauges::Labels mine = {{"node", node.node()}};
    gauges_.Set("troupe_node_queue", "Requests that wait at the node.", mine,
                static_cast<double>(load.queued()));
    gauges_.Set("troupe_node_running", "Requests given to GPUs.", mine, static_cast<double>(load.running()));
    gauges_.Set("troupe_node_served_total", "Requests served since the start.", mine,
                static_cast<double>(load.served()));
    gauges_.Set("troupe_node_swaps_total", "Models brought to a GPU.", mine,
                static_cast<double>(load.swaps()));
    gauges_.Set("troupe_node_hits_total", "Requests that found their model resident.", mine,
                static_cast<double>(load.hits()));
    gauges_.Set("troupe_node_retried_total", "Requests run again after a worker died.", mine,
                static_cast<double>(load.retried()));
    gauges_.Set("troupe_runs_cut_total", "Runs that were cut at their function's run limit.", mine,
                static_cast<double>(cut_));
    const auto usage = repository_->host_usage();
    gauges_.Set("troupe_host_region_bytes", "Size of the host region.", mine,
                static_cast<double>(usage.capacity.count()));
    gauges_.Set("troupe_host_region_huge_pages", "1 when the host region is made of huge pages.", mine,
                host_->huge_pages());
    gauges_.Set("troupe_host_region_used_bytes", "Bytes of models in the host region.", mine,
                static_cast<double>(usage.used.count()));
    ShowGpus(node);
    ShowSwaps(node, gauges_);
    ShowUsage(node, gauges_);
    worker_refusals_->Show(mine, gauges_);
    if (Isolated()) ShowRuntimes(node);
  }

  void ShowRuntimes(const proto::NodeDescription& node) {
    const Gauges::Labels mine = {{"node", node.node()}};
    gauges_.Set("troupe_node_runtimes_assigned_total", "Warm workers that were assigned to a key.", mine,
                static_cast<double>(assigned_));
    gauges_.Set("troupe_node_runtimes_reclaimed_total",
                "Workers that were replaced, since others had served there.", mine,
                static_cast<double>(reclaimed_));
    for (const auto& gpu : node.gpus()) {
      const auto warm = std::count_if(gpu.runtimes().begin(), gpu.runtimes().end(), [](const auto& runtime) {
        return runtime.key().empty() && runtime.state() == "ready";
      });
      gauges_.Set("troupe_gpu_warm_runtimes", "Workers of the GPU that serve no key yet.",
                  {{"node", node.node()}, {"gpu", std::to_string(gpu.gpu().index())}},
                  static_cast<double>(warm));
    }
  }

  void ShowGpus(const proto::NodeDescription& node) {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - measured_).count();
    double sum = 0, squares = 0;
    unsigned ready = 0;
    std::string problems;
    for (const auto& gpu : node.gpus()) {
      if (!gpu.gpu().problem().empty())
        absl::StrAppend(&problems, "; GPU ", gpu.gpu().index(), " is unfit: ", gpu.gpu().problem());
      const Gauges::Labels labels = {{"node", node.node()}, {"gpu", std::to_string(gpu.gpu().index())}};
      const auto& worker = gpu.worker();
      const bool up = gpu.gpu().state() == "ready";
      ready += up;
      // A new worker counts from zero again.
      auto& before = busy_[gpu.gpu().index()];
      const auto moved = worker.busy_ns() >= before ? worker.busy_ns() - before : worker.busy_ns();
      before = worker.busy_ns();
      const double share = std::min(1.0, static_cast<double>(moved) * 1e-9 / seconds);
      sum += share;
      squares += share * share;
      gauges_.Set("troupe_gpu_up", "1 while the GPU's worker is ready.", labels, up);
      gauges_.Set("troupe_gpu_busy_share", "Share of the last second in which the GPU computed.", labels,
                  share);
      gauges_.Set("troupe_gpu_resident_models", "Models on the GPU.", labels, worker.resident_size());
      gauges_.Set("troupe_gpu_free_bytes", "Free memory of the GPU.", labels,
                  static_cast<double>(worker.free_bytes()));
      gauges_.Set("troupe_gpu_restarts_total", "Times the GPU's worker was started again.", labels,
                  static_cast<double>(gpu.restarts()));
    }
    const double n = std::max(1, node.gpus_size());
    gauges_.Set("troupe_gpu_busy_share_variance", "Variance of the busy share over the node's GPUs.",
                {{"node", node.node()}}, squares / n - (sum / n) * (sum / n));
    measured_ = now;
    ready_gpus_ = ready;
    const std::lock_guard lock(problems_mutex_);
    problems_ = std::move(problems);
  }

  Common& common_;
  const std::shared_ptr<gpu::GpuWatch> watch_;  // null: virtual GPUs, or a driver that tells nothing
  const std::shared_ptr<WorkerRefusals> worker_refusals_ = std::make_shared<WorkerRefusals>();
  const node::Topology topology_;
  transport::LinkBuckets links_;
  std::shared_ptr<gpu::LinkReader> reader_;
  std::shared_ptr<storage::HostSegments> host_;
  std::shared_ptr<StoredModelRepository> repository_;
  CacheActor cache_;
  NodeControllerActor controller_;
  std::shared_ptr<const Lease> lease_;
  MemberActor member_;
  std::string address_;
  Gauges gauges_;
  std::map<unsigned, std::int64_t> busy_;
  std::chrono::steady_clock::time_point measured_ = std::chrono::steady_clock::now();
  std::atomic<unsigned> ready_gpus_{0};
  std::mutex problems_mutex_;
  std::string problems_;                                   // guarded by problems_mutex_; for people
  std::atomic<std::uint64_t> assigned_{0}, reclaimed_{0};  // runtimes
  std::atomic<std::uint64_t> cut_{0};                      // runs
};

}  // namespace

absl::StatusOr<std::unique_ptr<Role>> StartNodeRole(Common& common, const std::string& operations) {
  TROUPE_ASSIGN_OR_RETURN(auto told, AskDriver(common.config));
  TROUPE_ASSIGN_OR_RETURN(auto topology, node::Topology::Parse(told.topology));
  std::vector<gpu::PeerLink> peers;
  for (const auto& link : topology.PeerLinks()) peers.push_back({link.a, link.b, link.speed});
  TROUPE_ASSIGN_OR_RETURN(auto links, gpu::CreateNodeLinks(common.config.gpus.count, common.config.gpus.link,
                                                           topology.Switches(), peers));
  TROUPE_ASSIGN_OR_RETURN(auto reader, gpu::LinkReader::Start());
  auto role = std::make_unique<NodeRole>(common, std::move(told.watch), std::move(topology), std::move(links),
                                         std::move(reader));
  TROUPE_RETURN_IF_ERROR(role->Start(operations));
  return role;
}

}  // namespace troupe::actors
