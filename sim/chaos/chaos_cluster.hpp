// CHAOS CLUSTER: a world with everything that a schedule of faults needs round it: a network with watches on
// it, a disk with a watch on it, a simulated front at each gateway, operators with connections of their own. It
// starts, kills and starts again; what is done to it and when is others' (fault_injector, workloads).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "base/random.hpp"
#include "sim/chaos/agenda.hpp"
#include "sim/chaos/chaos_nodes.hpp"
#include "sim/chaos/event_trace.hpp"
#include "sim/chaos/gateway_fronts.hpp"
#include "sim/chaos/operator_links.hpp"
#include "sim/checkers/step_watch.hpp"
#include "sim/checkers/store_watch.hpp"
#include "sim/checkers/version_watch.hpp"
#include "sim/checkers/wire_watch.hpp"
#include "sim/faults/fault_plan.hpp"
#include "sim/faults/simulated_disk.hpp"
#include "sim/network.hpp"
#include "sim/world.hpp"

namespace troupe::sim {

class ChaosCluster {
 public:
  // `notes`: how many of the last ones it keeps.
  ChaosCluster(ClusterShape shape, std::uint64_t seed, std::size_t notes);
  ~ChaosCluster();
  ChaosCluster(const ChaosCluster&) = delete;
  ChaosCluster& operator=(const ChaosCluster&) = delete;

  // Manager, gateways, nodes, operators; they know each other when it returns.
  void Start();

  // --- what befalls it; false: it is not up (or not down), and nothing is done ---
  bool KillGateway(std::size_t index);
  bool StartGateway(std::size_t index);
  bool KillManager();
  absl::Status StartManager();
  [[nodiscard]] bool manager_up() const { return manager_up_; }
  [[nodiscard]] std::uint64_t torn() const { return torn_; }  // records that a killed manager was writing

  // By the manager's store, no node but these has the states, or may go on with copies of them.
  [[nodiscard]] bool StatesAreOnlyOn(const std::set<std::string>& nodes) const;

  // --- what happened, for people and for the trace hash ---
  void Note(const std::string& what);
  [[nodiscard]] const EventTrace& trace() const { return trace_; }

  [[nodiscard]] const ClusterShape& shape() const { return shape_; }
  [[nodiscard]] World& world() { return world_; }
  [[nodiscard]] Agenda& agenda() { return agenda_; }
  [[nodiscard]] GatewayFronts& fronts() { return fronts_; }
  [[nodiscard]] OperatorLinks& operators() { return operators_; }
  [[nodiscard]] ChaosNodes& nodes() { return nodes_; }
  [[nodiscard]] const ChaosNodes& nodes() const { return nodes_; }
  [[nodiscard]] SimulatedDisk& disk() { return disk_; }
  [[nodiscard]] StoreWatch& store_watch() { return store_watch_; }
  // What the manager's store says that functions used, compared with what the workers counted.
  [[nodiscard]] std::vector<std::string> BrokenUsage() const;
  [[nodiscard]] WireWatch& wire_watch() { return taps_.epochs; }
  [[nodiscard]] StepWatch& step_watch() { return taps_.steps; }
  [[nodiscard]] VersionWatch& version_watch() { return taps_.versions; }

 private:
  struct Taps final : NetworkTap {
    explicit Taps(StepWatch::Now now) : steps(std::move(now)) {}
    void Sent(const Passage& passage, const caf::message& content) override {
      epochs.Sent(passage, content);
      steps.Sent(passage, content);
      versions.Sent(passage, content);
    }
    void Arrives(const Passage& passage, caf::message& content) override {
      epochs.Arrives(passage, content);
      steps.Arrives(passage, content);
    }
    WireWatch epochs;
    StepWatch steps;
    VersionWatch versions;
  };
  [[nodiscard]] static NetworkOptions NetworkOf(std::uint64_t seed);
  [[nodiscard]] SimulatedDisk::Events DiskEvents();

  static constexpr std::uint32_t kReplicas = 2;
  const ClusterShape shape_;
  EventTrace trace_;
  World world_;
  Agenda agenda_;
  StoreWatch store_watch_;
  Taps taps_{[this] { return world_.Now(); }};
  SimulatedDisk disk_;
  GatewayFronts fronts_;
  OperatorLinks operators_;
  ChaosNodes nodes_;
  bool manager_up_ = false;
  std::uint64_t torn_ = 0;
};

}  // namespace troupe::sim
