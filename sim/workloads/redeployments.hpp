// REDEPLOYMENTS: a function with state that operators remove and deploy again, under the same version and under another one,
// while clients ask it.
#pragma once

#include <cstdint>
#include <string>

#include "base/random.hpp"
#include "sim/workloads/client_load.hpp"
#include "sim/workloads/operators.hpp"
#include "sim/workloads/request_clients.hpp"

namespace troupe::sim {

class Redeployments {
 public:
  // All outlive these clients.
  Redeployments(ClientLoad& load, RequestClients& requests, Operators& operators)
      : load_(load), requests_(requests), operators_(operators), random_(load.plan().redeployments) {}
  void Begin();

 private:
  void ChangeLoop();
  void AskLoop();
  void Remove(const std::string& version);
  void Deploy(const std::string& version);
  [[nodiscard]] Duration Pause(Duration mean);

  ClientLoad& load_;
  RequestClients& requests_;
  Operators& operators_;
  Random random_;  // of their own, so that all others draw what they would draw without them
  std::size_t operator_ = 0;
};

}  // namespace troupe::sim
