// CHAOS CLUSTER: a world with everything that a schedule of faults needs round it: a network with watches on
// it, a disk with a watch on it, a simulated front at each gateway, operators with connections of their own. It
// starts, kills and starts again; what is done to it and when is others' (fault_injector, workloads).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "sim/chaos/agenda.hpp"
#include "sim/chaos/node_meters.hpp"
#include "sim/chaos/simulated_front.hpp"
#include "sim/checkers/step_watch.hpp"
#include "sim/checkers/store_watch.hpp"
#include "sim/checkers/wire_watch.hpp"
#include "sim/faults/fault_plan.hpp"
#include "sim/faults/simulated_disk.hpp"
#include "sim/network.hpp"
#include "sim/world.hpp"

namespace troupe::sim {

// What an operator hears of its command. Not sent: there was no connection, so that it was not done.
struct AdminResult {
  bool sent = false;
  std::optional<proto::AdminReply> reply;  // empty: none in time, or the connection was lost
};

class ChaosCluster {
 public:
  // `notes`: how many of the last ones it keeps.
  ChaosCluster(ClusterShape shape, std::uint64_t seed, std::size_t notes);
  ~ChaosCluster();
  ChaosCluster(const ChaosCluster&) = delete;
  ChaosCluster& operator=(const ChaosCluster&) = delete;

  // Manager, gateways, nodes, operators; they know each other when it returns.
  void Start();

  // --- as its clients use it ---
  // `done` is called once, also when the gateway dies. `request.call` names it for Cancel. A gateway that is
  // down answers Unavailable at once. `key`: the client's Idempotency-Key; empty: none.
  void Infer(std::size_t gateway, proto::InferRequest request, const std::string& key,
             SimulatedFront::Done done);
  void Cancel(std::size_t gateway, std::uint64_t call);
  void Admin(std::size_t of, proto::AdminRequest request, Duration timeout,
             std::function<void(AdminResult)> done);

  // --- what befalls it; false: it is not up (or not down), and nothing is done ---
  bool KillGateway(std::size_t index);
  bool StartGateway(std::size_t index);
  bool KillManager();
  absl::Status StartManager();
  bool KillNode(const std::string& name);
  bool StartNode(const std::string& name, World::Kept kept);
  [[nodiscard]] bool manager_up() const { return manager_up_; }
  [[nodiscard]] std::uint64_t torn() const { return torn_; }  // records that a killed manager was writing
  [[nodiscard]] bool GatewayUp(std::size_t index) const { return fronts_[index] != nullptr; }
  // Of the gateway that is up, or was up last; each start is another one.
  [[nodiscard]] std::uint64_t LifeOf(std::size_t gateway) const { return lives_[gateway]; }
  // What each life of a gateway counted.
  [[nodiscard]] std::vector<GatewayCount> Counts() const;
  [[nodiscard]] bool NodeUp(const std::string& name) { return world_.node(name).running; }
  [[nodiscard]] actors::FakeWorkerControl& Worker(const std::string& node, std::uint32_t gpu) {
    return *world_.node(node).workers.at(gpu);
  }

  // From now on runs of this model take so long instead, at each GPU; zero: as long as all others.
  void StretchRuns(const std::string& digest, Duration run) { long_runs_->length[digest] = run; }
  // What the GPUs saw of the runs of models that StretchRuns named.
  [[nodiscard]] const std::vector<actors::FakeLongRuns::Seen>& long_runs() const { return long_runs_->seen; }
  // How often the workers were started, all of them.
  [[nodiscard]] std::uint64_t WorkerStarts();

  // --- planted errors (planted.hpp) ---
  // In each front from now on.
  void PlantInFronts(std::function<void(SimulatedFront&)> plant);
  void HideAFunction() { hides_ = true; }  // from the next list
  void TakeMemory(Bytes bytes);            // of each GPU, behind its node's back
  void ForgetARun();                       // each state that is on a GPU now
  void ShareStates();                      // workers write back by model, not by function
  void NeverCut() { long_runs_->never_cuts = true; }

  // --- what happened, for people and for the trace hash ---
  void Note(const std::string& what);
  [[nodiscard]] const std::deque<std::string>& notes() const { return notes_; }
  [[nodiscard]] std::uint64_t trace_hash() const { return hash_; }

  [[nodiscard]] const ClusterShape& shape() const { return shape_; }
  [[nodiscard]] World& world() { return world_; }
  [[nodiscard]] Agenda& agenda() { return agenda_; }
  [[nodiscard]] SimulatedDisk& disk() { return disk_; }
  [[nodiscard]] StoreWatch& store_watch() { return store_watch_; }
  [[nodiscard]] NodeMeters& meters() { return meters_; }
  // What the manager's store says that functions used, compared with what the workers counted.
  [[nodiscard]] std::vector<std::string> BrokenUsage() const;
  [[nodiscard]] WireWatch& wire_watch() { return taps_.epochs; }
  [[nodiscard]] StepWatch& step_watch() { return taps_.steps; }
  [[nodiscard]] std::string Clock() { return FormatDuration(world_.Now().time_since_epoch()); }

 private:
  struct Link {
    actors::ClusterManagerActor manager;
    caf::actor watcher;
  };
  struct Taps final : NetworkTap {
    explicit Taps(StepWatch::Now now) : steps(std::move(now)) {}
    void Sent(const Passage& passage, const caf::message& content) override {
      epochs.Sent(passage, content);
      steps.Sent(passage, content);
    }
    void Arrives(const Passage& passage, caf::message& content) override {
      epochs.Arrives(passage, content);
      steps.Arrives(passage, content);
    }
    WireWatch epochs;
    StepWatch steps;
  };
  [[nodiscard]] static NetworkOptions NetworkOf(std::uint64_t seed);
  [[nodiscard]] SimulatedDisk::Events DiskEvents();
  void OpenFront(std::size_t index);
  void Connect(Link& link, const std::string& name);
  [[nodiscard]] World::NodePlan PlanOf(const std::string& name);
  [[nodiscard]] std::string DiskOf(const std::string& node) const { return disks_ + "/" + node; }

  static constexpr std::uint32_t kReplicas = 2;
  const ClusterShape shape_;
  const std::size_t most_notes_;
  const std::string disks_;  // a directory of its own: under it the states of each node's functions
  World world_;
  NodeMeters meters_{world_};
  Agenda agenda_;
  StoreWatch store_watch_;
  Taps taps_{[this] { return world_.Now(); }};
  SimulatedDisk disk_;
  std::vector<std::shared_ptr<SimulatedFront>> fronts_;      // by gateway; null: down
  std::vector<std::shared_ptr<SimulatedFront>> all_fronts_;  // of all lives
  std::vector<std::uint64_t> lives_;                         // by gateway
  std::vector<std::shared_ptr<Link>> operators_;
  bool manager_up_ = false;
  std::function<void(SimulatedFront&)> planted_;
  const std::shared_ptr<actors::FakeLongRuns> long_runs_ = std::make_shared<actors::FakeLongRuns>();
  bool hides_ = false;
  std::uint64_t torn_ = 0;
  std::deque<std::string> notes_;
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

}  // namespace troupe::sim
