// NODE ORDERS: what operators order of nodes and other members: drains, the end of a GPU's worker, faults.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "cluster/events.hpp"
#include "cluster/records/after_commit.hpp"

namespace troupe::cluster {

struct Parts;

class NodeOrders {
 public:
  explicit NodeOrders(Parts& parts) : parts_(parts) {}

  // Durable before the node is asked. The order counts for a node that is not connected, too: it is asked when it joins.
  void Drain(Ask ask, const proto::DrainNode& wish);
  void Kill(Ask ask, const proto::KillGpu& wish);
  void On(const DrainStored& stored, const absl::Status& status);
  void On(const DrainAnswered& event);
  void On(FaultCarried& event);

 private:
  void Answer(Ask ask, const absl::Status& status);

  Parts& parts_;
};

}  // namespace troupe::cluster
