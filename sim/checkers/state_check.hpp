// What must hold of functions that keep state, and of sequences of requests to them, as clients see it. The state of a simulated function is the
// number of its runs, and each answer says it. No two answers were computed on the same state; what was
// acknowledged is in every state from then on; no request counts twice, and none that was refused counts,
// when nothing that may repeat it went wrong; a function that was removed and deployed again begins anew; a run that went well finds its state to be kept. Requests with
// one Idempotency-Key at one life of a gateway are one: all are given the same.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "sim/checkers/deployments.hpp"
#include "sim/checkers/request_ledger.hpp"

namespace troupe::sim {

struct StateRules {
  std::set<std::string> functions{};  // with all sequences of requests to them
  std::vector<Time> lost{};           // a disk was lost then: states may begin again
  // Else what a node computed may be asked of it again, when its answer was lost.
  bool once = false;
  std::set<std::string> callers{};  // workflows whose runs call them, each once
  // One more function, which is removed and deployed again: each deployment of each version begins anew.
  std::string redeployed{};
  std::vector<RegistryOp> registry{};
  RequestRules requests{};
};
// A line for each rule that was broken.
[[nodiscard]] std::vector<std::string> CheckStates(const RequestLedger& ledger, const StateRules& rules);

}  // namespace troupe::sim
