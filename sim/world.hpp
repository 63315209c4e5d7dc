// WORLD: a whole cluster in one process under virtual time: the production cluster manager, routers, node
// controllers, caches, executors and members, over the second forms of the five seams, on CAF's
// deterministic scheduler. Used by the simulations and by the tests of the actors.
#pragma once

#include <caf/all.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/gateway/front.hpp"
#include "actors/gateway/router.hpp"
#include "actors/manager/cluster_manager.hpp"
#include "actors/member/member.hpp"
#include "actors/node/cache.hpp"
#include "actors/node/node_controller.hpp"
#include "actors/peers/local_peer_directory.hpp"
#include "actors/seams/fake_model_repository.hpp"
#include "actors/seams/fake_worker_link.hpp"
#include "sim/network_options.hpp"
#include "sim/virtual_system.hpp"
#include "storage/fake_metadata_store.hpp"
#include "transport/fake_tensor_channel.hpp"

namespace troupe::sim {

class Network;

class World : public VirtualSystem {
 public:
  struct Node {
    actors::NodeControllerActor controller;
    actors::CacheActor cache;
    actors::MemberActor member;
    actors::FakeModelRepository repository;
    std::shared_ptr<actors::PullCounts> pulled = std::make_shared<actors::PullCounts>();
    std::shared_ptr<transport::FakeTensorChannel> channel;            // of its host, whatever process has it
    std::vector<std::shared_ptr<actors::FakeWorkerControl>> workers;  // by runtime
    bool running = true;
    std::uint64_t incarnation = 0;  // of its daemon, as kept tensors name it
    // The id of its cluster, as its disk has it.
    std::shared_ptr<std::string> cluster = std::make_shared<std::string>();
  };
  struct Gateway {
    actors::RouterActor router;
    actors::MemberActor member;
    std::shared_ptr<actors::RouterInbox> inbox = std::make_shared<actors::RouterInbox>();
    std::shared_ptr<actors::ViewCell> view = std::make_shared<actors::ViewCell>();
    std::unique_ptr<transport::FakeTensorChannel> channel;
    std::unique_ptr<actors::FrontClient> front;  // workflows go through it
  };
  // A node to start. `options` without make_link, which is the world's.
  struct NodePlan {
    actors::NodeOptions options;
    actors::FakeWorkerProfile worker;  // of each GPU; its runtimes share the memory
    std::vector<Bytes> memories{};     // of the GPUs, where they differ; empty: the worker's
    Bytes host_region = GiB(2);
    std::string cluster{};                         // that it was a member of
    std::shared_ptr<actors::FakeMeters> meters{};  // in which its workers count; null: they do not
    actors::PullTerms pulls{};
    // What is wrong with what its disk gives to other nodes, and with what it takes of them.
    std::shared_ptr<actors::FakeRanges> ranges = std::make_shared<actors::FakeRanges>();
    // The engine of each runtime; empty: what `worker` says.
    std::function<std::unique_ptr<actors::FakeGpu>(std::uint32_t runtime, actors::FakeGpu::Timer)> make_gpu;
  };
  // What a node that was killed finds when it is started again: its workers and its host region (only its
  // daemon had died), its disk, or nothing.
  enum class Kept { kWorkers, kDisk, kNothing };
  // Changes what a deployment asks for.
  using DeployWish = std::function<void(proto::DeployRequest&)>;

  // With `network` its members reach each other over it; without, at once and always.
  explicit World(const std::optional<NetworkOptions>& network = {});
  ~World() override;
  // Ends every actor; nothing of this world calls back afterwards. A derived class calls it first of all.
  void ShutDown();

  // Metadata are kept there from the next start of the manager on, instead of in `store()`. Outlives this.
  void UseStore(storage::MetadataStore& store) { metadata_ = &store; }
  // `adjust`: what else the manager is set up with; may be empty.
  void StartManager(std::uint32_t replicas = 2,
                    const std::function<void(actors::ManagerOptions&)>& adjust = {});
  // DataLoss and others: what it found in its store does not let it start.
  absl::Status TryStartManager(std::uint32_t replicas,
                               const std::function<void(actors::ManagerOptions&)>& adjust = {});
  void StopManager();
  // The manager's wall clock shows so much more than the virtual time.
  void SetWallClock(Duration ahead) { wall_clock_ahead_ = ahead; }
  // "gateway-1", "gateway-2", ...
  void StartGateway(actors::RouterOptions options = {});
  // "gateway-N" as by kill -9: the router, the front and its runs are gone.
  void KillGateway(std::size_t index);
  // A node that was killed; its router is another one.
  void RestartGateway(std::size_t index);
  void StartNode(NodePlan plan);
  void KillNode(const std::string& name);
  // What a node is started again with.
  void AdjustNode(const std::string& name, const std::function<void(NodePlan&)>& adjust) {
    adjust(plans_.at(name));
  }
  // A node that was killed, as it was started first.
  void RestartNode(const std::string& name, Kept kept);

  // A function that the repositories know; `weights` is what it takes of a GPU. Each input comes back as an
  // output, "out_" and its name.
  absl::Status Deploy(const std::string& name, Bytes weights,
                      Duration deadline = std::chrono::milliseconds(100),
                      const std::vector<std::string>& inputs = {"x"},
                      const std::vector<proto::StateTensor>& state = {}, const DeployWish& wish = {});
  // The input `x` of a request for such a function: so many rows of four numbers. `bytes` is what lies in it, of any length.
  [[nodiscard]] static proto::Tensor InputX(std::int64_t rows, std::string bytes);
  // A model that the manager has, for deployments: its ONNX file's digest. A node fetches it when it adopts
  // it; Deploy has put it there before.
  std::string MakeModel(const std::string& name, Bytes weights,
                        const std::vector<std::string>& inputs = {"x"},
                        const std::vector<proto::StateTensor>& state = {});
  // Of that function's model.
  [[nodiscard]] static std::string ModelDigest(const std::string& function);
  // The key under which the workers know that function's model.
  [[nodiscard]] static std::string WorkerDigest(const std::string& function);
  // Of one of so many stages of that model.
  [[nodiscard]] static std::string WorkerDigestOfStage(const std::string& function, std::uint32_t number,
                                                       std::uint32_t count);

  // Asks the manager and runs until it has answered, for at most `limit`.
  template <class Reply = proto::AdminReply, class Request>
  absl::StatusOr<Reply> Ask(const Request& request, Duration limit = std::chrono::seconds(5)) {
    auto reply = std::make_shared<std::optional<Reply>>();
    system().spawn([this, request, reply](caf::event_based_actor* self) {
      self->request(manager_, caf::infinite, request).then([reply](Reply& got) { *reply = std::move(got); });
    });
    RunUntil([&] { return reply->has_value(); }, limit);
    if (!reply->has_value()) return absl::DeadlineExceededError("the manager did not answer");
    if ((*reply)->code() != 0)
      return absl::Status(static_cast<absl::StatusCode>((*reply)->code()), (*reply)->message());
    return **reply;
  }
  // What the node says of itself, its GPUs and its swaps.
  proto::NodeDescription Describe(const std::string& name);

  [[nodiscard]] Node& node(const std::string& name) { return *nodes_.at(name); }
  // How often the workers of all nodes were started.
  [[nodiscard]] std::uint64_t WorkerStarts() const {
    std::uint64_t starts = 0;
    for (const auto& [name, node] : nodes_)
      for (const auto& worker : node->workers) starts += worker->spawns;
    return starts;
  }
  [[nodiscard]] Gateway& gateway(std::size_t index) { return *gateways_.at(index); }
  [[nodiscard]] std::size_t gateways() const { return gateways_.size(); }
  [[nodiscard]] storage::FakeMetadataStore& store() { return store_; }
  [[nodiscard]] actors::ClusterManagerActor manager() const { return manager_; }
  // Of all hosts: what lies in one member's channel can be fetched from every other's.
  [[nodiscard]] const std::shared_ptr<transport::FakeTensorChannel::World>& memory() const {
    return hosts_.memory;
  }
  [[nodiscard]] actors::FakeModelRepository& manager_repository() { return manager_repository_; }
  // Where that member finds its peers.
  [[nodiscard]] actors::PeerDirectory& DirectoryOf(const std::string& member);
  // Of a world without a network.
  [[nodiscard]] actors::LocalPeerDirectory& directory() { return directory_; }
  [[nodiscard]] Network* network() { return network_.get(); }

 private:
  void MakeWorkers(Node& node, NodePlan& plan);
  void Bear(Node& node, NodePlan plan);
  void Bear(Gateway& gateway, const std::string& name);
  template <class Handle>
  void Publish(const std::string& member, const Handle& actor);
  void Retract(const std::string& member, const std::string& reason);

  actors::LocalPeerDirectory directory_;
  std::unique_ptr<Network> network_;  // null: none
  storage::FakeMetadataStore store_;
  storage::MetadataStore* metadata_ = &store_;
  Duration wall_clock_ahead_{};
  actors::FakeModelRepository manager_repository_;
  actors::ClusterManagerActor manager_;
  std::vector<std::unique_ptr<Gateway>> gateways_;
  std::vector<actors::RouterOptions> gateway_options_;  // as they were asked for
  struct {
    std::shared_ptr<transport::FakeTensorChannel::World> memory = transport::FakeTensorChannel::NewWorld();
    std::uint64_t next_daemon = 1;
    std::uint64_t next_router = 7;
  } hosts_;
  std::map<std::string, std::unique_ptr<Node>> nodes_;
  std::map<std::string, NodePlan> plans_;  // by node
};

}  // namespace troupe::sim
