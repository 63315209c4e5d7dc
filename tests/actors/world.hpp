// A whole cluster in one process under virtual time: cluster manager, one router, nodes with caches and
// executors, all the production actors, over the fakes of the five seams. Same steps, same trace.
#pragma once

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/core/message_types.hpp"
#include "actors/core/time.hpp"
#include "actors/gateway/router.hpp"
#include "actors/manager/cluster_manager.hpp"
#include "actors/member/member.hpp"
#include "actors/node/cache.hpp"
#include "actors/node/node_controller.hpp"
#include "actors/peers/local_peer_directory.hpp"
#include "actors/seams/fake_model_repository.hpp"
#include "actors/seams/fake_worker_link.hpp"
#include "base/digest.hpp"
#include "storage/fake_metadata_store.hpp"

namespace troupe::actors {

// caf's own accessor to the schedule is protected by nothing but its type: the next due time decides each
// step, since one long jump would fire a periodic timer only once.
class World {
 public:
  struct Node {
    NodeControllerActor controller;
    CacheActor cache;
    MemberActor member;
    FakeModelRepository repository;
    std::vector<std::shared_ptr<FakeWorkerControl>> workers;
  };

  // Changes what a deployment asks for.
  using DeployWish = std::function<void(proto::DeployRequest&)>;
  // By name of the node: where it brings inputs of other hosts to.
  using Channels = std::map<std::string, transport::TensorChannel*>;

  explicit World(std::size_t nodes, std::size_t gpus_per_node = 2, FakeWorkerProfile profile = {},
                 Channels channels = {}, Bytes host_region = GiB(2),
                 std::function<void(NodeOptions&)> adjust = {})
      : config_(Configure()),
        system_(*config_),
        profile_(profile),
        channels_(std::move(channels)),
        host_region_(host_region),
        adjust_(std::move(adjust)) {
    StartManager();
    StartRouter();
    for (std::size_t i = 0; i < nodes; ++i) StartNode("node-" + std::to_string(i + 1), gpus_per_node);
    Run(std::chrono::seconds(1));
  }

  ~World() {
    directory_.Clear();
    for (auto& [name, node] : nodes_) {
      caf::anon_send_exit(node->controller, caf::exit_reason::user_shutdown);
      caf::anon_send_exit(node->cache, caf::exit_reason::user_shutdown);
      caf::anon_send_exit(node->member, caf::exit_reason::user_shutdown);
    }
    caf::anon_send_exit(router_, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(gateway_member_, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(manager_, caf::exit_reason::user_shutdown);
    nodes_.clear();
    router_ = RouterActor();
    gateway_member_ = MemberActor();
    manager_ = ClusterManagerActor();
    Settle();
    scheduler().clock().cancel_all();
  }

  // Runs everything that can run now, then moves time from one due event to the next, for `span` altogether.
  void Run(Duration span) {
    const auto end = scheduler().clock().now() + span;
    Settle();
    while (true) {
      const auto& schedule = scheduler().clock().schedule();
      if (schedule.empty() || schedule.begin()->first > end) break;
      const auto due = schedule.begin()->first;
      const auto now = scheduler().clock().now();
      scheduler().advance_time(due > now ? due - now : caf::timespan(0));
      Settle();
    }
    const auto now = scheduler().clock().now();
    if (now < end) scheduler().advance_time(end - now);
    Settle();
  }

  void Settle() {
    while (scheduler().try_run_once()) {
    }
  }

  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  }
  caf::actor_system& system() { return system_; }

  // A function that the fakes know; `weights` decides how long a swap takes. Each input comes back as an
  // output, "out_" and its name.
  absl::Status Deploy(const std::string& name, Bytes weights,
                      Duration deadline = std::chrono::milliseconds(100),
                      const std::vector<std::string>& inputs = {"x"},
                      const std::vector<proto::StateTensor>& state = {}, const DeployWish& wish = {}) {
    proto::FunctionRecord record;
    record.set_model_digest(Sha256Hex("model " + name));
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
    for (const char* part : {"model ", "weights "}) manager_repository_.Put(part + name);
    manager_repository_.AddModel(onnx, record);
    for (auto& [node_name, node] : nodes_) node->repository.AddModel(onnx, record);
    proto::AdminRequest request;
    auto& deploy = *request.mutable_deploy();
    deploy.set_name(name);
    deploy.set_onnx_digest(onnx);
    *deploy.mutable_state() = {state.begin(), state.end()};
    deploy.mutable_slo()->set_deadline_ns(deadline.count());
    if (wish) wish(deploy);
    return Ask(request, std::chrono::seconds(10)).status();
  }

  // Asks the manager and runs until it has answered, for at most `limit`.
  template <class Reply = proto::AdminReply, class Request>
  absl::StatusOr<Reply> Ask(const Request& request, Duration limit = std::chrono::seconds(5)) {
    auto reply = std::make_shared<std::optional<Reply>>();
    system_.spawn([this, request, reply](caf::event_based_actor* self) {
      self->request(manager_, caf::infinite, request).then([reply](Reply& got) { *reply = std::move(got); });
    });
    RunUntil([&] { return reply->has_value(); }, limit);
    if (!reply->has_value()) return absl::DeadlineExceededError("the manager did not answer");
    if ((*reply)->code() != 0)
      return absl::Status(static_cast<absl::StatusCode>((*reply)->code()), (*reply)->message());
    return **reply;
  }

  // What the node says of itself, its GPUs and its swaps.
  proto::NodeDescription Describe(const std::string& name) {
    auto reply = std::make_shared<std::optional<proto::NodeDescription>>();
    system_.spawn([controller = node(name).controller, reply](caf::event_based_actor* self) {
      self->request(controller, caf::infinite, proto::DescribeNode())
          .then([reply](proto::NodeDescription& got) { *reply = std::move(got); });
    });
    RunUntil([&] { return reply->has_value(); }, std::chrono::seconds(5));
    return reply->value_or(proto::NodeDescription());
  }

  template <class Condition>
  void RunUntil(Condition condition, Duration limit) {
    for (Duration spent{}; !condition() && spent < limit; spent += std::chrono::milliseconds(1))
      Run(std::chrono::milliseconds(1));
  }

  // Sends a request; the answer is appended to `answers` with its time.
  void Infer(const std::string& function, std::uint64_t call, Duration timeout = std::chrono::seconds(10),
             const std::string& workflow = {}) {
    proto::InferRequest request;
    request.set_workflow(workflow);
    request.mutable_function()->set_name(function);
    request.set_timeout_ns(timeout.count());
    request.set_call(call);
    auto& input = *request.add_inputs();
    input.mutable_spec()->set_name("x");
    input.mutable_spec()->set_type(proto::FP32);
    input.mutable_spec()->add_shape(1);
    input.mutable_spec()->add_shape(4);
    input.mutable_data()->set_inlined(std::to_string(call));
    clients_[call] = system_.spawn([this, request, call](caf::event_based_actor* self) -> caf::behavior {
      const auto sent = Now(self);
      self->request(router_, caf::infinite, request).then([this, self, call, sent](proto::InferReply& reply) {
        answers.push_back({call, std::move(reply), Now(self) - sent});
      });
      return {[this, self](const proto::CancelInfer& cancel) { self->send(router_, cancel); }};
    });
  }

  // Nobody waits for it any more.
  void Cancel(std::uint64_t call) {
    proto::CancelInfer cancel;
    cancel.set_call(call);
    caf::anon_send(clients_.at(call), std::move(cancel));
  }

  struct Answered {
    std::uint64_t call;
    proto::InferReply reply;
    Duration took;
  };
  std::vector<Answered> answers;
  std::vector<std::pair<std::string, std::string>> events;  // of the nodes: kind and message

  [[nodiscard]] Node& node(const std::string& name) { return *nodes_.at(name); }
  [[nodiscard]] storage::FakeMetadataStore& store() { return store_; }
  [[nodiscard]] RouterActor router() const { return router_; }
  [[nodiscard]] const std::shared_ptr<RouterInbox>& router_inbox() const { return router_inbox_; }
  [[nodiscard]] const std::shared_ptr<ViewCell>& view() const { return view_; }
  [[nodiscard]] ClusterManagerActor manager() const { return manager_; }
  [[nodiscard]] LocalPeerDirectory& directory() { return directory_; }

  void StopManager() {
    directory_.Retract("manager", "stopped");
    caf::anon_send_exit(manager_, caf::exit_reason::kill);
    manager_ = ClusterManagerActor();
  }
  void StartManager() {
    ManagerOptions options;
    options.new_cluster_id = "test-cluster";
    options.unix_now = [this] { return scheduler().clock().now().time_since_epoch().count(); };
    auto manager = SpawnClusterManager(system_, std::move(options), store_, manager_repository_);
    manager_ = *manager;
    directory_.Publish("manager", caf::actor_cast<caf::strong_actor_ptr>(manager_),
                       system_.message_types<ClusterManagerActor>());
  }
  void KillNode(const std::string& name) {
    auto& dead = *nodes_.at(name);
    directory_.Retract(name, "killed");
    caf::anon_send_exit(dead.member, caf::exit_reason::kill);
    caf::anon_send_exit(dead.controller, caf::exit_reason::kill);
    caf::anon_send_exit(dead.cache, caf::exit_reason::kill);
  }

 private:
  static std::unique_ptr<caf::actor_system_config> Configure() {
    auto config = std::make_unique<caf::actor_system_config>();
    RegisterMessageTypes(*config);
    config->set("scheduler.policy", caf::atom("testing"));
    return config;
  }

  void StartRouter() {
    RouterOptions options;
    options.gateway = "gateway-1";
    options.id = 7;
    options.inbox = router_inbox_;
    options.view = view_;
    router_ = *SpawnRouter(system_, std::move(options), directory_);
    MemberOptions member;
    member.manager = "manager";
    member.record.set_name("gateway-1");
    member.record.set_kind(proto::MEMBER_GATEWAY);
    member.record.set_address("gateway-1");
    gateway_member_ = SpawnGatewayMember(system_, std::move(member), router_, directory_);
  }

  void StartNode(const std::string& name, std::size_t gpus) {
    auto& node = *(nodes_[name] = std::make_unique<Node>());
    node.cache = SpawnCache(system_, {"manager"}, node.repository, directory_);
    NodeOptions options;
    options.name = name;
    if (const auto it = channels_.find(name); it != channels_.end()) options.channel = it->second;
    options.copies.region = host_region_;
    options.on_event = [this](const std::string& kind, const std::string& message) {
      events.emplace_back(kind, message);
    };
    for (std::size_t i = 0; i < gpus; ++i)
      options.gpus.push_back({"fake:" + std::to_string(i), profile_.memory});
    if (adjust_) adjust_(options);
    for (std::size_t i = 0; i < gpus * options.isolation.runtimes; ++i)
      node.workers.push_back(std::make_shared<FakeWorkerControl>());
    for (auto& worker : node.workers) {
      worker->peer_lends = [&node](std::uint32_t gpu, std::uint64_t loan) {
        return node.workers[gpu]->life.loans.contains(loan);
      };
    }
    auto profile = profile_;
    profile.memory = Bytes(profile.memory.count() / options.isolation.runtimes);
    options.make_link = [this, profile, workers = node.workers](std::uint32_t i) {
      return MakeFakeWorkerLink(system_, profile, workers[i]);
    };
    node.controller = *SpawnNodeController(system_, std::move(options), node.cache);
    directory_.Publish(name, caf::actor_cast<caf::strong_actor_ptr>(node.controller),
                       system_.message_types<NodeControllerActor>());
    MemberOptions member;
    member.manager = "manager";
    member.record.set_name(name);
    member.record.set_kind(proto::MEMBER_NODE);
    member.record.set_address(name);
    member.record.set_host_region_bytes(host_region_.count());
    node.member = SpawnNodeMember(system_, std::move(member), node.controller, directory_);
  }

  std::unique_ptr<caf::actor_system_config> config_;
  caf::actor_system system_;
  const FakeWorkerProfile profile_;
  const Channels channels_;
  const Bytes host_region_;
  const std::function<void(NodeOptions&)> adjust_;  // changes what the nodes are set up with
  LocalPeerDirectory directory_;
  storage::FakeMetadataStore store_;
  FakeModelRepository manager_repository_;
  ClusterManagerActor manager_;
  std::shared_ptr<RouterInbox> router_inbox_ = std::make_shared<RouterInbox>();
  std::shared_ptr<ViewCell> view_ = std::make_shared<ViewCell>();
  RouterActor router_;
  MemberActor gateway_member_;
  std::map<std::string, std::unique_ptr<Node>> nodes_;
  std::map<std::uint64_t, caf::actor> clients_;
};

}  // namespace troupe::actors
