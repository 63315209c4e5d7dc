// SIMULATED CLUSTER: the cluster of an experiment: a world whose nodes have simulated GPUs, and what those have
// done.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "sim/network.hpp"
#include "sim/sandbox_gpu.hpp"
#include "sim/simulation.hpp"
#include "sim/trace_workflows.hpp"
#include "sim/virtual_disk.hpp"
#include "sim/world.hpp"

namespace troupe::sim {

class SimulatedCluster {
 public:
  // A model comes to a GPU.
  struct Bringing {
    const std::string& digest;
    std::size_t function = 0;
    bool from_peer = false;
    bool elsewhere = false;  // another GPU has it
  };
  using OnBring = std::function<void(const Bringing&)>;
  // `models`: of the functions. The setup outlives the cluster.
  SimulatedCluster(const SimulationSetup& setup, std::vector<std::size_t> models, OnBring on_bring);
  SimulatedCluster(const SimulatedCluster&) = delete;
  SimulatedCluster& operator=(const SimulatedCluster&) = delete;

  // Manager, gateway and nodes; Deploy comes when they know each other.
  void Start();
  absl::Status Deploy();
  // Ends every actor; none calls back afterwards.
  void ShutDown();

  [[nodiscard]] World& world() { return world_; }
  [[nodiscard]] const std::string& Name(std::size_t function) const {
    return setup_.workload.functions[function].name;
  }
  [[nodiscard]] const TraceWorkflows& workflows() const { return workflows_; }
  [[nodiscard]] const ModelSpec& ModelOf(std::size_t function) const {
    return setup_.cluster.models[models_[function]];
  }
  // What the sandboxes of all GPUs hold now, and how many GPUs have sandboxes.
  [[nodiscard]] Bytes HeldBySandboxes() const;
  [[nodiscard]] std::size_t sandboxed() const { return sandboxed_.size(); }
  // GPUs that have the function's model.
  [[nodiscard]] std::uint64_t CopiesOf(std::size_t function);
  // How busy GPUs and links were, in the outcome's length.
  void ShowUse(Outcome& outcome);

 private:
  [[nodiscard]] static std::optional<NetworkOptions> NetworkOf(const SimulationSetup& setup);
  [[nodiscard]] ModelTimes TimesOf(const ModelSpec& model) const;
  [[nodiscard]] Bytes MemoryOf(const ModelSpec& model) const;
  absl::Status SubmitWorkflows();
  void StartNode(const std::string& name);
  void StartSandboxed(const std::string& name, World::NodePlan plan);
  [[nodiscard]] proto::NodeProfiles Profiles() const;
  [[nodiscard]] std::uint32_t NumberOf(const std::string& node) const;
  [[nodiscard]] GpuMechanism MechanismOf(const std::string& node, std::uint32_t gpu);
  [[nodiscard]] bool IsElsewhere(const std::string& digest, const std::string& node, std::uint32_t gpu);
  [[nodiscard]] std::shared_ptr<GpuUse> UseOf(const std::string& node, std::uint32_t gpu);

  const SimulationSetup& setup_;
  const std::vector<std::size_t> models_;
  const OnBring on_bring_;
  const std::shared_ptr<ModelCatalogue> catalogue_ = std::make_shared<ModelCatalogue>();
  std::map<std::string, std::size_t> functions_;  // by the key under which workers know their models
  const TraceWorkflows workflows_;
  World world_;
  VirtualDisk disk_;  // of the manager, where there are workflows
  std::vector<std::string> nodes_;
  std::map<std::pair<std::string, std::uint32_t>, std::shared_ptr<GpuUse>> uses_;
  std::set<std::shared_ptr<HostLink>> links_;
  std::vector<std::shared_ptr<SharedGpu>> sandboxed_;
};

}  // namespace troupe::sim
