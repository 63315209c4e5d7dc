// NODE PROVISIONER: what gets, replaces and gives back machines for nodes. Production: a command of the
// operator's (command_provisioner); simulated: sim/simulated_provisioner. The cluster manager decides
// (cluster/provisioning) and orders; the node itself joins, or leaves, by its own daemon.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace troupe::actors {

struct ProvisionOrder {
  std::string action;  // "replace", "add", "drain": the node has drained, and may be stopped and given back
  std::string node;    // with "replace" and "drain"
  std::string json;    // action, node and all members as the manager knows them, in one object
};

class NodeProvisioner {
 public:
  virtual ~NodeProvisioner() = default;
  // Returns at once. `done` is called once, on any thread: OK when the order was taken up, else why not, in
  // one line; it is only destroyed when this ends before the order's turn. A node that comes of it joins
  // later.
  virtual void Carry(ProvisionOrder order, std::function<void(absl::Status)> done) = 0;
};

}  // namespace troupe::actors
