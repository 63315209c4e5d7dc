// What must hold of what gateways count: each request that was answered well counts once, at the gateway that
// had it computed, also when others were given the same answer. Nothing that counts is kept beyond a
// gateway's life.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/checkers/request_ledger.hpp"

namespace troupe::sim {

struct GatewayCount {
  std::string gateway{};
  std::uint64_t life = 0;
  std::uint64_t served = 0;
  std::uint64_t failed = 0;
};
// A line for each life of a gateway that counted something else than its clients saw.
[[nodiscard]] std::vector<std::string> CheckCounts(const RequestLedger& ledger,
                                                   const std::vector<GatewayCount>& counts);

}  // namespace troupe::sim
