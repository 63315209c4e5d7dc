// CANARIES: a function whose two versions share its requests. Operators change the parts of both, promote, roll back, remove
// the second version and deploy it again, one thing after the other; clients ask the function at every gateway. In the end
// someone asks so many times in a row that each part is seen exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "sim/checkers/version_history.hpp"
#include "sim/workloads/client_load.hpp"
#include "sim/workloads/operators.hpp"
#include "sim/workloads/request_clients.hpp"

namespace troupe::sim {

class Canaries {
 public:
  // All outlive these clients.
  Canaries(ClientLoad& load, RequestClients& requests, Operators& operators)
      : load_(load), requests_(requests), operators_(operators), random_(load.plan().canaries) {}

  // Deploys both versions; nothing else happens meanwhile.
  void Prepare();
  void Begin();
  // Nothing that was asked before is under way: what the manager says now is how it is.
  void Look();
  // The last requests, each of which is to be served: their numbers.
  [[nodiscard]] std::vector<std::uint64_t> AskInARow(Duration timeout);
  [[nodiscard]] const std::vector<VersionOp>& ops() const { return ops_; }
  // Digests of the models, by version.
  [[nodiscard]] static std::map<std::string, std::string> Models();

 private:
  [[nodiscard]] ChaosCluster& cluster() { return load_.cluster(); }
  void ChangeLoop();
  void AskLoop();
  void Do(VersionOp op, const std::function<void()>& then);
  [[nodiscard]] VersionOp Drawn();
  [[nodiscard]] static proto::AdminRequest RequestOf(const VersionOp& op);
  void Answered(std::size_t number, const AdminResult& result);
  [[nodiscard]] Duration Pause(Duration mean);

  ClientLoad& load_;
  RequestClients& requests_;
  Operators& operators_;
  Random random_;  // of their own, so that all others draw what they would draw without them
  std::vector<VersionOp> ops_;
  std::size_t operator_ = 0;  // who goes on; the other one does when one is not answered
};

}  // namespace troupe::sim
