#include "cluster/run_takeover.hpp"

#include <algorithm>
#include <tuple>

namespace troupe::cluster {

std::vector<Takeover> PlanTakeovers(const std::vector<LooseRun>& runs, std::vector<RunGateway> gateways,
                                    Time now, Duration grace) {
  std::vector<Takeover> plan;
  if (gateways.empty()) return plan;
  for (const LooseRun& run : runs) {
    if (!run.gone && now - run.since < grace) continue;
    const auto key = [&](const RunGateway& gateway) {
      return std::tuple(gateway.runs, gateway.name == run.gateway, gateway.name);
    };
    const auto least = std::min_element(gateways.begin(), gateways.end(),
                                        [&](const auto& a, const auto& b) { return key(a) < key(b); });
    ++least->runs;
    plan.push_back({run.run, least->name});
  }
  return plan;
}

}  // namespace troupe::cluster
