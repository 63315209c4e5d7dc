// VERSION CHECK: what clients and the network see of a function whose versions share the requests that name none. What must
// hold: the version that serves a request had a part of the requests at some moment between question and answer; a request keeps
// its version, and goes to that version's model; while nothing changes, of any requests in a row at one gateway each version
// gets its part of them, rounded up or down, and so of a hundred exactly its percents. Knows nothing of how gateways choose.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/checkers/request_ledger.hpp"
#include "sim/checkers/version_history.hpp"

namespace troupe::sim {

// A request that a gateway sent to a node.
struct VersionSent {
  std::string question{};
  std::string version{};
  std::string model{};  // its digest
};

struct VersionRules {
  std::string function{};
  std::map<std::string, std::string> models{};  // digests by version
  RequestRules requests{};
};

// A line for each rule that was broken.
[[nodiscard]] std::vector<std::string> CheckVersions(const RequestLedger& ledger,
                                                     const std::vector<VersionOp>& ops,
                                                     const std::vector<VersionSent>& sent,
                                                     const VersionRules& rules);

}  // namespace troupe::sim
