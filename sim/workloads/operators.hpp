// OPERATORS: the clients that change a cluster: deployments, removals, cancelled runs, drained nodes. They send a
// command twice when they do not hear what became of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/checkers/isolation_check.hpp"
#include "sim/checkers/registry_history.hpp"
#include "sim/workloads/client_load.hpp"

namespace troupe::sim {

// The name by which clients call a function: of a stage, that of its model.
[[nodiscard]] const std::string& CalledBy(const proto::FunctionRecord& function);

class Operators {
 public:
  using Listed = std::function<void(const AdminResult&)>;

  // Outlived by the workload.
  explicit Operators(ClientLoad& load) : load_(load) {}

  // What is there all the time: deployed, and usable when it returns.
  void Prepare();
  // Each operator's deployments, removals and looks.
  void ChurnLoops();
  void CancelLoop();
  void DrainLoop();
  void Undrain();
  void List(Listed done = {});
  // A deployment, a removal or a look at "name/version"; `done` hears the answer when the history has it.
  void Once(std::size_t of, RegistryOp::Kind kind, const std::string& key, Listed done);
  void Command(std::size_t of, const proto::AdminRequest& request, Listed done);
  [[nodiscard]] bool Idle() const { return commands_ == 0; }

  [[nodiscard]] const std::vector<RegistryOp>& history() const { return history_; }
  [[nodiscard]] const std::set<std::string>& cancelled_runs() const { return cancelled_runs_; }
  [[nodiscard]] std::vector<std::string> Names() const;  // of all functions there may be
  [[nodiscard]] std::vector<ModelUser> ModelUsers() const;

 private:
  [[nodiscard]] ChaosCluster& cluster() { return load_.cluster(); }
  void MakeModels();
  [[nodiscard]] proto::AdminRequest DeploymentOf(const std::string& key) const;
  void ChurnLoop(std::size_t of);
  void Change(std::size_t of, RegistryOp::Kind kind, const std::string& key, std::uint32_t tries,
              const std::function<void()>& then);
  void Changed(std::size_t op, const AdminResult& result);
  void SetDrain(const std::string& node, bool drain, std::uint32_t tries);
  std::size_t Record(RegistryOp::Kind kind, const std::string& key);

  ClientLoad& load_;
  std::vector<RegistryOp> history_;
  std::map<std::string, std::string> onnx_;  // by function
  std::map<std::string, std::string>
      other_models_;                      // of versions that have one of their own, by "name/version"
  std::set<std::string> cancelled_runs_;  // whose cancellation was acknowledged
  std::set<std::string> draining_;
  std::uint64_t commands_ = 0;  // under way
};

}  // namespace troupe::sim
