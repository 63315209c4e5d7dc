// DEPLOYMENTS: which deployment of a function may have answered a request, by what operators asked and heard, as a function that
// was removed and deployed again begins anew. Knows nothing of the manager and the nodes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/checkers/registry_history.hpp"
#include "sim/checkers/request_ledger.hpp"

namespace troupe::sim {

class Deployments {
 public:
  // `function`: its name; empty: of none.
  Deployments(const std::string& function, const std::vector<RegistryOp>& registry,
              const RequestRules& rules);

  [[nodiscard]] bool Has(const RequestRecord& request) const {
    return !function_.empty() && request.function == function_;
  }
  // The name of the deployment that answered; empty: it may have been one of several.
  [[nodiscard]] std::string Of(const RequestRecord& request) const;
  // The state with which the answer was computed: of that deployment, or of the request's sequence there.
  [[nodiscard]] std::string StateOf(const RequestRecord& request) const;
  // Its version was removed, or may have been, between question and answer.
  [[nodiscard]] bool RemovedMeanwhile(const RequestRecord& request) const;
  // Counts the requests that may have changed the state until `by`, each of them once. With `refused` the count has the
  // refused requests, too.
  [[nodiscard]] std::int64_t AskedOf(const std::string& state, const RequestLedger& ledger, Time by,
                                     bool refused) const;

 private:
  [[nodiscard]] static std::string NameOf(const RegistryOp& deployment);
  // It was there no more, whatever became of what was not answered.
  [[nodiscard]] bool EndedBy(const RegistryOp& deployment, Time by) const;

  const std::string function_;
  std::vector<RegistryOp> changes_;  // of this function
  const RequestRules rules_;
};

}  // namespace troupe::sim
