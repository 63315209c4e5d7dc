// SHARING UPDATES: an operator who changes how functions share their GPUs while they are served, and what the cluster may
// have of it in the end.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/workloads/client_load.hpp"

namespace troupe::sim {

class SharingUpdates {
 public:
  // Outlived by the workload.
  explicit SharingUpdates(ClientLoad& load) : load_(load) {}

  // One function after the other, until the load is over.
  void Loop();
  [[nodiscard]] bool Idle() const { return commands_ == 0; }
  // A line for each function of the list that has neither the settings that were acknowledged last nor settings whose
  // update was never answered: that one may have been done at any time.
  [[nodiscard]] std::vector<std::string> Check(const proto::AdminReply& listed) const;

  // A mistake on purpose: what was acknowledged last is kept as if it had been something else.
  void Misremember() { misremembers_ = true; }

 private:
  struct Known {
    std::string acknowledged{};  // as cluster::DescribeSharing has it; of the deployment: no setting
    std::set<std::string> unsure{};
  };
  void Update(const std::string& function, const proto::GpuSharing& sharing);

  ClientLoad& load_;
  std::map<std::string, Known> known_;  // by function
  std::uint64_t count_ = 0;
  std::uint64_t commands_ = 0;  // under way
  bool misremembers_ = false;
};

}  // namespace troupe::sim
