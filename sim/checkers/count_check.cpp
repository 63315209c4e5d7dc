#include "sim/checkers/count_check.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::sim {

std::vector<std::string> CheckCounts(const RequestLedger& ledger, const std::vector<GatewayCount>& counts) {
  std::vector<std::string> broken;
  for (const GatewayCount& count : counts) {
    const auto seen = std::ranges::count_if(ledger.all(), [&](const RequestRecord& request) {
      return request.gateway == count.gateway && request.life == count.life && request.answers > 0 &&
             request.code == absl::StatusCode::kOk && !request.again;
    });
    if (static_cast<std::uint64_t>(seen) == count.served) continue;
    broken.push_back(absl::StrCat(count.gateway, " counted ", count.served,
                                  " requests that it served in its life ", count.life,
                                  ", and its clients saw ", seen));
  }
  return broken;
}

}  // namespace troupe::sim
