// HEALTH: whether a cluster with which nothing goes wrong is well: asked of it as an operator asks, and
// looked at inside once nothing is under way.
#pragma once

#include <string>
#include <vector>

#include "sim/chaos/chaos_cluster.hpp"

namespace troupe::sim {

class Health {
 public:
  explicit Health(ChaosCluster& cluster) : cluster_(cluster) {}
  // A line for each member that does not take part, or GPU that is not ready, as the manager says, and for
  // each run that has not ended. `all`: also those whose start lies on the disk and was never acknowledged,
  // which a manager finds when it is started.
  [[nodiscard]] std::vector<std::string> Look(bool all);
  // A line for everything that waits or is held although no client asks for anything.
  [[nodiscard]] std::vector<std::string> LookInside();

 private:
  void LookAtRuns(bool all, std::vector<std::string>& ill);
  void LookAtGateways(std::vector<std::string>& ill);
  void LookAtNodes(std::vector<std::string>& ill);
  // A line for each worker to which a model comes, or from which one is copied.
  [[nodiscard]] std::vector<std::string> Copies();
  ChaosCluster& cluster_;
};

}  // namespace troupe::sim
