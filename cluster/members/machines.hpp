// MACHINES: dead nodes are replaced, and the cluster follows its load: which machines for nodes are ordered,
// and when one whose node has drained is given back (cluster/provisioning.hpp decides when).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/events.hpp"
#include "cluster/provisioning.hpp"

namespace troupe::cluster {

struct Parts;

class Machines {
 public:
  explicit Machines(Parts& parts);

  void Provision();
  void On(const MachineOrdered& event) { Ended(event.action, event.status); }

 private:
  [[nodiscard]] std::vector<ProvisionedNode> Nodes() const;
  // Gives back what has drained.
  void GiveBack(const std::vector<ProvisionedNode>& nodes);
  void Order(const ProvisionAction& action);
  void Ended(const ProvisionAction& action, const absl::Status& status);

  Parts& parts_;
  Provisioning provisioning_;
  std::set<std::string> leaving_;  // nodes that drain and are given back then
};

}  // namespace troupe::cluster
