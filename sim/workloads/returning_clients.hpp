// RETURNING CLIENTS: the clients that come again: with the Idempotency-Key of a request whose answer they did not
// get, or do not wait for, at the same gateway or at another one; and runs of a workflow.
#pragma once

#include <cstdint>

#include "sim/workloads/client_load.hpp"
#include "sim/workloads/request_clients.hpp"

namespace troupe::sim {

class ReturningClients {
 public:
  // Both outlive these clients.
  ReturningClients(ClientLoad& load, RequestClients& requests) : load_(load), requests_(requests) {}
  void WorkflowLoop();
  void KeyLoop();

 private:
  [[nodiscard]] ChaosCluster& cluster() { return load_.cluster(); }
  void AskWithKey(RequestRecord record);

  ClientLoad& load_;
  RequestClients& requests_;
  std::uint64_t keys_ = 0;
};

}  // namespace troupe::sim
