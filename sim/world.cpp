#include "sim/world.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/digest.hpp"
#include "sim/network.hpp"

namespace troupe::sim {

namespace {
// The objects of a model are these words before its function's name.
constexpr std::array<const char*, 2> kModelParts = {"model ", "weights "};
}  // namespace

World::World(const std::optional<NetworkOptions>& network)
    : network_(network ? std::make_unique<Network>(system(), *network) : nullptr) {}

World::~World() {
  ShutDown();
}

void World::ShutDown() {
  directory_.Clear();
  if (network_) network_->Clear();
  const auto end = [](const auto& actor) { caf::anon_send_exit(actor, caf::exit_reason::user_shutdown); };
  for (auto& [name, node] : nodes_) {
    end(node->controller);
    end(node->cache);
    end(node->member);
  }
  for (auto& gateway : gateways_) {
    gateway->front.reset();
    end(gateway->router);
    end(gateway->member);
  }
  if (manager_) end(manager_);
  nodes_.clear();
  gateways_.clear();
  manager_ = actors::ClusterManagerActor();
  Settle();
  scheduler().clock().cancel_all();
}

actors::PeerDirectory& World::DirectoryOf(const std::string& member) {
  return network_ ? network_->DirectoryOf(member) : directory_;
}

template <class Handle>
void World::Publish(const std::string& member, const Handle& actor) {
  const auto handle = caf::actor_cast<caf::strong_actor_ptr>(actor);
  const auto interface = system().message_types<Handle>();
  network_ ? network_->Publish(member, handle, interface) : directory_.Publish(member, handle, interface);
}

void World::Retract(const std::string& member, const std::string& reason) {
  network_ ? network_->Retract(member) : directory_.Retract(member, reason);
}

void World::StartManager(std::uint32_t replicas, const std::function<void(actors::ManagerOptions&)>& adjust) {
  const auto started = TryStartManager(replicas, adjust);
  TROUPE_CHECK(started.ok(), "the manager refuses to start");
}

absl::Status World::TryStartManager(std::uint32_t replicas,
                                    const std::function<void(actors::ManagerOptions&)>& adjust) {
  actors::ManagerOptions options;
  options.replicas = replicas;
  options.new_cluster_id = "test-cluster";
  options.unix_now = [this] { return (Now() + wall_clock_ahead_).time_since_epoch().count(); };
  if (adjust) adjust(options);
  auto manager = actors::SpawnClusterManager(system(), std::move(options), *metadata_, manager_repository_);
  if (!manager.ok()) return manager.status();
  manager_ = *manager;
  Publish("manager", manager_);
  return absl::OkStatus();
}

void World::StopManager() {
  Retract("manager", "stopped");
  caf::anon_send_exit(manager_, caf::exit_reason::kill);
  manager_ = actors::ClusterManagerActor();
}

void World::StartGateway(actors::RouterOptions options) {
  auto& gateway = *gateways_.emplace_back(std::make_unique<Gateway>());
  options.gateway = absl::StrCat("gateway-", gateways_.size());
  gateway_options_.push_back(std::move(options));
  Bear(gateway, gateway_options_.back().gateway);
}

void World::RestartGateway(std::size_t index) {
  Settle();  // the one before has ended
  auto& gateway = *(gateways_.at(index) = std::make_unique<Gateway>());
  Bear(gateway, gateway_options_.at(index).gateway);
}

void World::Bear(Gateway& gateway, const std::string& name) {
  auto options = *std::ranges::find(gateway_options_, name, &actors::RouterOptions::gateway);
  options.id = hosts_.next_router++;
  options.inbox = gateway.inbox;
  options.view = gateway.view;
  actors::MemberOptions member;
  options.lease = member.lease;
  member.manager = "manager";
  member.record.set_name(name);
  member.record.set_kind(proto::MEMBER_GATEWAY);
  member.record.set_address(name);
  auto router = actors::SpawnRouter(system(), std::move(options), DirectoryOf(name));
  TROUPE_CHECK(router.ok(), "the router refuses its options");
  gateway.router = *router;
  actors::FrontOptions front;
  front.gateway = name;
  front.manager = "manager";
  front.incarnation = hosts_.next_router;
  front.view = gateway.view;
  front.router_inbox = gateway.inbox;
  gateway.channel = std::make_unique<transport::FakeTensorChannel>(hosts_.memory, MiB(64), name);
  gateway.front = actors::MakeFrontClient(system(), std::move(front), gateway.router, DirectoryOf(name),
                                          *gateway.channel);
  gateway.member = actors::SpawnGatewayMember(system(), std::move(member), gateway.router,
                                              gateway.front->actor(), DirectoryOf(name));
}

void World::KillGateway(std::size_t index) {
  auto& dead = *gateways_.at(index);
  Retract(absl::StrCat("gateway-", index + 1), "killed");
  caf::anon_send_exit(dead.member, caf::exit_reason::kill);
  caf::anon_send_exit(dead.router, caf::exit_reason::kill);
  dead.front.reset();
  Settle();
}

void World::MakeWorkers(Node& node, NodePlan& plan) {
  const auto runtimes = plan.options.isolation.runtimes;
  const bool adopted = !node.workers.empty();
  for (std::size_t i = 0; i < plan.options.gpus.size() * runtimes; ++i) {
    if (!adopted) node.workers.push_back(std::make_shared<actors::FakeWorkerControl>());
    auto& worker = node.workers[i];
    worker->meters = plan.meters;
    worker->peer_pins = [&node, runtimes](std::uint32_t gpu, const std::string& runtime, std::uint64_t pin) {
      const auto first = node.workers.begin() + gpu * runtimes;
      return std::any_of(first, first + runtimes, [&](const auto& source) {
        return source->life.runtime == runtime && source->life.pins.contains(pin);
      });
    };
    worker->peer_tensor = [&node, runtimes](std::uint32_t gpu, const std::string& runtime,
                                            std::uint64_t pin) -> std::optional<std::string> {
      const auto first = node.workers.begin() + gpu * runtimes;
      for (auto source = first; source != first + runtimes; ++source)
        if ((*source)->life.runtime == runtime && (*source)->life.tensors.Pinned(pin))
          return (*source)->life.tensors.Pinned(pin);
      return std::nullopt;
    };
    worker->peer_sends = [&node, runtimes](std::uint32_t gpu,
                                           const std::string& meeting) -> std::optional<bool> {
      const auto first = node.workers.begin() + gpu * runtimes;
      for (auto sender = first; sender != first + runtimes; ++sender) {
        const auto& life = (*sender)->life;
        if (const auto sent = life.meetings.find(meeting); sent != life.meetings.end())
          return !life.loading.contains(sent->second);
      }
      return std::nullopt;
    };
  }
  auto profile = plan.worker;
  profile.channel = node.channel;
  profile.memory = Bytes(profile.memory.count() / runtimes);
  plan.options.make_link = [this, profile, make_gpu = plan.make_gpu, memories = plan.memories, runtimes,
                            workers = node.workers](std::uint32_t i) mutable {
    if (!memories.empty()) profile.memory = Bytes(memories.at(i / runtimes).count() / runtimes);
    if (make_gpu)
      profile.make_gpu = [make_gpu, i](actors::FakeGpu::Timer timer) {
        return make_gpu(i, std::move(timer));
      };
    return actors::MakeFakeWorkerLink(system(), profile, workers[i]);
  };
}

void World::StartNode(NodePlan plan) {
  plans_[plan.options.name] = plan;
  auto& node = *(nodes_[plan.options.name] = std::make_unique<Node>());
  Bear(node, std::move(plan));
}

void World::RestartNode(const std::string& name, Kept kept) {
  Settle();  // the one before has ended
  auto& node = *nodes_.at(name);
  TROUPE_CHECK(!node.running, "a node is killed before it is started again");
  node.running = true;
  if (kept != Kept::kWorkers) {
    for (const auto& worker : node.workers) worker->life.tensors.Clear();  // others may hold it still
    node.workers.clear();
    node.repository.LoseRegion();
  }
  if (kept == Kept::kNothing) {
    node.repository = actors::FakeModelRepository();
    node.cluster->clear();
  }
  Bear(node, plans_.at(name));
}

void World::Bear(Node& node, NodePlan plan) {
  const auto name = plan.options.name;
  if (node.channel == nullptr)
    node.channel = std::make_shared<transport::FakeTensorChannel>(hosts_.memory, MiB(256), name);
  if (plan.options.channel == nullptr) plan.options.channel = node.channel.get();
  plan.options.incarnation = node.incarnation = hosts_.next_daemon++;
  node.repository.UseRanges(plan.ranges);
  node.cache = actors::SpawnCache(
      system(), {.manager = "manager", .node = name, .pulls = plan.pulls, .counts = node.pulled},
      node.repository, DirectoryOf(name));
  MakeWorkers(node, plan);
  actors::MemberOptions member;
  plan.options.lease = member.lease;
  auto controller = actors::SpawnNodeController(system(), std::move(plan.options), node.cache);
  TROUPE_CHECK(controller.ok(), "the node controller refuses its options");
  node.controller = *controller;
  Publish(name, node.controller);
  member.manager = "manager";
  member.cluster = plan.cluster.empty() ? *node.cluster : plan.cluster;
  member.keep_cluster = [kept = node.cluster](const std::string& cluster) { *kept = cluster; };
  member.record.set_name(name);
  member.record.set_kind(proto::MEMBER_NODE);
  member.record.set_address(name);
  member.record.set_host_region_bytes(plan.host_region.count());
  node.member = actors::SpawnNodeMember(system(), std::move(member), node.controller, DirectoryOf(name));
}

void World::KillNode(const std::string& name) {
  auto& dead = *nodes_.at(name);
  dead.running = false;
  Retract(name, "killed");
  caf::anon_send_exit(dead.member, caf::exit_reason::kill);
  caf::anon_send_exit(dead.controller, caf::exit_reason::kill);
  caf::anon_send_exit(dead.cache, caf::exit_reason::kill);
}

std::string World::ModelDigest(const std::string& function) {
  return Sha256Hex("model " + function);
}

std::string World::WorkerDigest(const std::string& function) {
  return absl::StrCat("packed-", ModelDigest(function));
}

std::string World::WorkerDigestOfStage(const std::string& function, std::uint32_t number,
                                       std::uint32_t count) {
  return absl::StrCat("packed-",
                      actors::FakeModelRepository::StageDigest(ModelDigest(function), number, count));
}

absl::Status World::Deploy(const std::string& name, Bytes weights, Duration deadline,
                           const std::vector<std::string>& inputs,
                           const std::vector<proto::StateTensor>& state, const DeployWish& wish) {
  proto::AdminRequest request;
  auto& deploy = *request.mutable_deploy();
  deploy.set_name(name);
  deploy.set_onnx_digest(MakeModel(name, weights, inputs, state));
  manager_repository_.Import({deploy.onnx_digest()}, "",
                             [&](const absl::StatusOr<proto::FunctionRecord>& record) {
                               for (auto& [node_name, node] : nodes_) {
                                 for (const char* part : kModelParts) node->repository.Put(part + name);
                                 node->repository.AddModel(deploy.onnx_digest(), *record);
                               }
                             });
  *deploy.mutable_state() = {state.begin(), state.end()};
  deploy.mutable_slo()->set_deadline_ns(deadline.count());
  if (wish) wish(deploy);
  return Ask(request, std::chrono::seconds(10)).status();
}

std::string World::MakeModel(const std::string& name, Bytes weights, const std::vector<std::string>& inputs,
                             const std::vector<proto::StateTensor>& state) {
  proto::FunctionRecord record;
  record.set_model_digest(ModelDigest(name));
  record.set_weights_digest(Sha256Hex("weights " + name));
  record.set_weights_bytes(weights.count());
  record.set_model_bytes(1000);
  for (const auto& input_name : inputs) {
    auto& input = *record.add_inputs();
    input.set_name(input_name);
    input.set_type(proto::FP32);
    input.add_shape(-1);
    input.add_shape(4);
    auto& output = *record.add_outputs();
    output = input;
    output.set_name("out_" + input_name);
  }
  for (const auto& tensor : state) {
    for (auto* spec : {record.add_inputs(), record.add_outputs()}) {
      spec->set_type(proto::FP32);
      spec->add_shape(4);
    }
    record.mutable_inputs(record.inputs_size() - 1)->set_name(tensor.input());
    record.mutable_outputs(record.outputs_size() - 1)->set_name(tensor.output());
  }
  const auto onnx = Sha256Hex("onnx " + name);
  for (const char* part : kModelParts) manager_repository_.Put(part + name);
  manager_repository_.AddModel(onnx, record);
  return onnx;
}

proto::Tensor World::InputX(std::int64_t rows, std::string bytes) {
  proto::Tensor input;
  input.mutable_spec()->set_name("x");
  input.mutable_spec()->set_type(proto::FP32);
  input.mutable_spec()->add_shape(rows);
  input.mutable_spec()->add_shape(4);
  input.mutable_data()->set_inlined(std::move(bytes));
  return input;
}

proto::NodeDescription World::Describe(const std::string& name) {
  auto reply = std::make_shared<std::optional<proto::NodeDescription>>();
  system().spawn([controller = node(name).controller, reply](caf::event_based_actor* self) {
    self->request(controller, caf::infinite, proto::DescribeNode())
        .then([reply](proto::NodeDescription& got) { *reply = std::move(got); });
  });
  RunUntil([&] { return reply->has_value(); }, std::chrono::seconds(5));
  return reply->value_or(proto::NodeDescription());
}

}  // namespace troupe::sim
