// NODE RUNS: how long runs take at each node, as this router has seen it from answers: nodes with GPUs of other kinds differ.
// Runs that found their models on the GPU count, so that swaps do not. A node that has not run a model yet is taken to be as
// much slower with it as it was with models that it and others have run.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/units.hpp"
#include "scheduling/running_estimate.hpp"

namespace troupe::cluster {

class NodeRuns {
 public:
  void Observe(const std::string& model, const std::string& node, Duration run);
  // Zero: no node has run the model.
  [[nodiscard]] Duration RunAt(const std::string& model, const std::string& node) const;
  // The nodes that hold the model have changed; null: none holds it.
  void Keep(const std::string& model, const std::set<std::string>* holders);
  // The node is gone. A node that comes back under its name may have other GPUs.
  void Forget(const std::string& node);

 private:
  using ByNode = std::map<std::string, RunningEstimate>;
  // 1 for a node that no other can be compared with.
  [[nodiscard]] double SlownessOf(const std::string& node) const;

  std::map<std::string, ByNode> runs_;  // by model; none of them is empty
  std::map<std::string, double>
      slowness_;  // how many times longer a node's runs are than at the fastest one of their models
};

}  // namespace troupe::cluster
