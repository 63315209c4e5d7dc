#include <spdlog/spdlog.h>

#include <algorithm>
#include <caf/scoped_actor.hpp>
#include <filesystem>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "actors/daemon/driver_told.hpp"
#include "actors/daemon/membership.hpp"
#include "actors/daemon/node_files.hpp"
#include "actors/daemon/node_gauges.hpp"
#include "actors/daemon/process_faults.hpp"
#include "actors/daemon/roles.hpp"
#include "actors/daemon/vital.hpp"
#include "actors/daemon/worker_refusals.hpp"
#include "actors/node/cache.hpp"
#include "actors/node/node_controller.hpp"
#include "actors/seams/process_worker_link.hpp"
#include "actors/seams/stored_model_repository.hpp"
#include "base/status.hpp"
#include "node/runtimes/isolation.hpp"
#include "storage/directory_lock.hpp"
#include "storage/durable_file.hpp"
#include "transport/local_channel.hpp"

namespace troupe::actors {

namespace {

struct NodeActors {
  CacheActor cache;
  NodeControllerActor controller;
  MemberActor member;
};

class NodeRole final : public Role {
 public:
  NodeRole(Common& common, DriverTold told, node::Topology topology, transport::LinkBuckets links,
           std::unique_ptr<gpu::LinkReader> reader)
      : common_(common),
        watch_(std::move(told.watch)),
        kinds_(std::move(told.kinds)),
        topology_(std::move(topology)),
        links_(std::move(links)),
        reader_(std::move(reader)),
        gauges_(common.registry) {}
  ~NodeRole() override {
    caf::anon_send_exit(actors_.member, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(actors_.controller, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(actors_.cache, caf::exit_reason::user_shutdown);
    // Its executors end a little later; their links keep the reader.
    caf::scoped_actor self(*common_.system);
    self->wait_for(caf::actor_cast<caf::actor>(actors_.controller));
    actors_ = {};
  }

  absl::Status Start(const std::string& operations) {
    const auto& config = common_.config;
    // The workers whose sockets lie there are this daemon's, as long as it lives.
    TROUPE_ASSIGN_OR_RETURN(run_lock_, storage::DirectoryLock::Acquire(config.member.run));
    const bool huge_pages = config.gpus.huge_pages == HugePages::kAuto;
    TROUPE_ASSIGN_OR_RETURN(
        host_, storage::HostSegments::Create({config.member.name, config.gpus.host_region, huge_pages,
                                              Isolated(), config.gpus.device != gpu::DeviceKind::kVirtual}));
    if (huge_pages && !host_->huge_pages())
      spdlog::debug("the host region is made of normal pages: the system has no huge ones for {}",
                    FormatBytes(config.gpus.host_region));
    StoredModelRepository::Options repository;
    repository.import_program = config.member.bin + "/troupe-import";
    repository.work_directory = config.member.data + "/fetch";
    // Real GPUs run canonical weights.
    if (config.gpus.device == gpu::DeviceKind::kVirtual) {
      TROUPE_ASSIGN_OR_RETURN(repository.pack_target, gpu::AskPackTarget(repository.import_program));
    }
    repository_ = std::make_shared<StoredModelRepository>(std::move(repository), *common_.objects,
                                                          host_.get(), *common_.channel);
    CacheOptions cache;
    cache.manager = common_.manager;
    cache.node = config.member.name;
    cache.counts = pull_counts_;
    spdlog::info(
        "policies: ordering {}, gpu {}, eviction {}, copies {}, binding {}, batching {}, swap {}, link sharing "
        "{}, sharing "
        "{}, memory {}",
        config.policies.chosen.ordering, config.policies.chosen.gpu, config.policies.chosen.eviction,
        config.policies.chosen.prefetch,
        config.policies.chosen.binding.empty() ? "late" : config.policies.chosen.binding,
        config.policies.chosen.batching, config.policies.chosen.swap, config.worker.link_sharing,
        config.policies.chosen.sharing, config.policies.chosen.memory);
    actors_.cache = SpawnCache(*common_.system, std::move(cache), *repository_, *common_.directory);
    TROUPE_ASSIGN_OR_RETURN(auto states, States());
    MemberOptions member;
    TROUPE_RETURN_IF_ERROR(TieToCluster(common_, true, member));
    lease_ = member.lease;
    auto options = Options();
    options.lease = lease_;
    options.states = std::move(states);
    TROUPE_ASSIGN_OR_RETURN(actors_.controller,
                            SpawnNodeController(*common_.system, std::move(options), actors_.cache));
    TROUPE_ASSIGN_OR_RETURN(address_, common_.Publish(actors_.controller, config.member.listen));
    auto& record = member.record;
    record.set_name(config.member.name);
    record.set_kind(proto::MEMBER_NODE);
    record.set_address(address_);
    record.set_operations(operations);
    record.set_host_region_bytes(config.gpus.host_region.count());
    record.set_host(config.member.host_id);
    actors_.member =
        SpawnNodeMember(*common_.system, std::move(member), actors_.controller, *common_.directory);
    EndProcessWith(actors_.cache, "the node's cache");
    EndProcessWith(actors_.controller, "the node controller");  // executors are linked with it
    EndProcessWith(actors_.member, "the node's member");
    AllowFaultsIn(common_, actors_.member);
    return absl::OkStatus();
  }

  [[nodiscard]] std::string Describe() const override {
    return absl::StrCat("node '", common_.config.member.name, "' with ", common_.config.gpus.count,
                        " GPUs at ", address_);
  }

  [[nodiscard]] absl::Status Health() override {
    TROUPE_RETURN_IF_ERROR(gauges_.Health());
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
    self->request(actors_.controller, kAskTimeout, proto::DescribeNode())
        .receive(
            [this](const proto::NodeDescription& node) {
              gauges_.Show(node, {repository_->host_usage(), host_->huge_pages()}, *worker_refusals_,
                           Isolated());
              gauges_.ShowPulls(node.node(), *pull_counts_, repository_->sent());
            },
            [](const caf::error&) {});
  }

  // Nothing new enters; what runs finishes. What is left then is answered by the routers' retries elsewhere.
  void Stop(Duration grace) override {
    caf::scoped_actor self(*common_.system);
    proto::DrainNode drain;
    drain.set_drain(true);
    self->request(actors_.controller, kAskTimeout, std::move(drain))
        .receive([](const proto::DrainReply&) {}, [](const caf::error&) {});
    const auto end = std::chrono::steady_clock::now() + grace;
    while (std::chrono::steady_clock::now() < end && Busy(self))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    self->send(actors_.member, proto::LeaveRequest());
    self->wait_for(caf::actor_cast<caf::actor>(actors_.member));
  }

 private:
  bool Busy(caf::scoped_actor& self) {
    bool busy = false;
    self->request(actors_.controller, kAskTimeout, proto::DescribeNode())
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
      gauges_.Count(kind);
      spdlog::log(LogLevelOf(kind), "{}: {}", kind, message);
    };
    static_cast<node::NodeTuning&>(options) = config.node;
    if (!KeepsWeights()) options.keep_weights = node::KeepWeights::kOff;
    options.incarnation = common_.incarnation;
    options.copies.region = host_->usage().capacity;
    options.topology = topology_;
    options.costs.link = config.gpus.link;
    KeepNodeFiles(config.member.data, config.member.run, common_.pool, options);
    options.executor.supervision.hang_timeout = config.gpus.hang;
    for (unsigned i = 0; i < config.gpus.count; ++i)
      options.gpus.push_back(
          {absl::StrCat(std::string(NameIn(gpu::kDeviceKinds, config.gpus.device)), ":", i),
           config.gpus.memory, kinds_.at(i)});
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
    options.make_link = [site, watch = watch_, isolated = Isolated(), keeps = KeepsWeights(),
                         refused = worker_refusals_, &config](std::uint32_t index) {
      ProcessWorkerOptions worker;
      worker.refused = [refused, index](std::uint64_t count) { refused->Set(index, count); };
      const auto gpu = index / config.node.isolation.runtimes;
      auto& command = worker.command;
      command.program = config.member.bin + "/troupe-gpu-worker";
      command.device = absl::StrCat(std::string(NameIn(gpu::kDeviceKinds, config.gpus.device)), ":", gpu);
      // A worker that outlived a daemon with other runtimes has no owner, and ends with its lease.
      const auto runtime = isolated ? absl::StrCat(".", config.node.isolation.runtimes, "-",
                                                   index % config.node.isolation.runtimes)
                                    : std::string();
      command.socket = absl::StrCat(config.member.run, "/worker-", gpu, runtime, ".sock");
      command.node = config.member.name;
      command.gpu = gpu;
      command.cores_for_all =
          config.gpus.count * config.worker.threads <= std::thread::hardware_concurrency();
      if (config.node.isolation.runtimes > 1) {
        command.gate = absl::StrCat(config.member.run, "/gpu-", gpu, ".gate");
        command.gate_slot = index % config.node.isolation.runtimes;
      }
      static_cast<gpu::WorkerSettings&>(command) = config.worker;
      worker.watch = {config.gpus.hang, config.gpus.hang, std::max(config.gpus.hang, worker.watch.prepare)};
      worker.memory = Bytes(config.gpus.memory.count() / config.node.isolation.runtimes);
      worker.keep_weights = keeps;
      if (watch != nullptr) worker.problem = [watch, gpu] { return watch->ProblemOf(gpu); };
      if (config.gpus.device != gpu::DeviceKind::kVirtual)
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
    TROUPE_RETURN_IF_ERROR(storage::RemoveUnfinished(states.directory));
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

  // Nothing waits for weights where none can outlive a worker: a runtime that dies comes back without a key, and these
  // policies choose places by themselves.
  [[nodiscard]] bool KeepsWeights() const {
    const auto& config = common_.config;
    const auto& memory = config.policies.chosen.memory;
    return config.node.keep_weights == node::KeepWeights::kOn &&
           config.gpus.device == gpu::DeviceKind::kVirtual && !Isolated() &&
           config.worker.addresses == gpu::WeightAddresses::kAdjacent && memory != "block-cache" &&
           memory != "device-malloc";
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

  Common& common_;
  std::optional<storage::DirectoryLock> run_lock_;  // of the run directory
  const std::shared_ptr<gpu::GpuWatch> watch_;      // null: virtual GPUs, or a driver that tells nothing
  const std::vector<std::string> kinds_;            // of each GPU
  const std::shared_ptr<WorkerRefusals> worker_refusals_ = std::make_shared<WorkerRefusals>();
  const node::Topology topology_;
  transport::LinkBuckets links_;
  std::shared_ptr<gpu::LinkReader> reader_;
  std::shared_ptr<storage::HostSegments> host_;
  std::shared_ptr<StoredModelRepository> repository_;
  const std::shared_ptr<PullCounts> pull_counts_ = std::make_shared<PullCounts>();
  NodeActors actors_;
  std::shared_ptr<const Lease> lease_;
  std::string address_;
  NodeGauges gauges_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Role>> StartNodeRole(Common& common, const std::string& operations) {
  TROUPE_ASSIGN_OR_RETURN(auto told, AskDriver(common.config));
  TROUPE_ASSIGN_OR_RETURN(auto topology, node::Topology::Parse(told.topology));
  std::vector<gpu::PeerLink> peers;
  for (const auto& link : topology.PeerLinks()) peers.push_back({link.a, link.b, link.speed});
  TROUPE_ASSIGN_OR_RETURN(
      auto links, gpu::CreateNodeLinks(common.config.gpus.count, common.config.gpus.link, topology.Switches(),
                                       peers, common.config.gpus.copy_time));
  TROUPE_ASSIGN_OR_RETURN(auto reader, gpu::LinkReader::Start());
  auto role = std::make_unique<NodeRole>(common, std::move(told), std::move(topology), std::move(links),
                                         std::move(reader));
  TROUPE_RETURN_IF_ERROR(role->Start(operations));
  return role;
}

}  // namespace troupe::actors
