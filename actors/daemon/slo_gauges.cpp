#include "actors/daemon/slo_gauges.hpp"

#include <array>
#include <set>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "proto/slo_counts.hpp"

namespace troupe::actors {

namespace {

constexpr const char* kSloShare = "troupe_slo_required_share";
constexpr const char* kSloDeadline = "troupe_slo_deadline_seconds";
constexpr const char* kSloRequests = "troupe_slo_requests_total";

}  // namespace

void ShowSlos(const proto::GatewayDescription& gateway, Gauges& gauges) {
  std::set<Gauges::Labels> functions;
  std::set<Gauges::Labels> ends;
  for (const auto& slo : gateway.functions()) {
    const auto& counts = slo.total();
    const std::array<std::pair<const char*, std::uint64_t>, 6> outcomes = {
        {{"in_time", counts.in_time()},
         {"late_queue", counts.late_queue()},
         {"late_swap", counts.late_swap()},
         {"late_run", counts.late_run()},
         {"late_network", counts.late_network()},
         {"failed", counts.failed()}}};
    Gauges::Labels labels{{"function", slo.function().name()}, {"version", slo.function().version()}};
    functions.insert(labels);
    gauges.Set(kSloShare, "Share of a function's requests that has to be in time.", labels,
               slo.deadline_ns() > 0 ? proto::RequiredShare(slo.percentile()) : 0);
    gauges.Set(kSloDeadline, "Time in which a function's requests are to be answered; 0: none is declared.",
               labels, ToSeconds(Duration(slo.deadline_ns())));
    for (const auto& [outcome, count] : outcomes) {
      labels["outcome"] = outcome;
      ends.insert(labels);
      gauges.Set(kSloRequests, "Requests that ended, by how they stood to their function's SLO.", labels,
                 static_cast<double>(count));
    }
  }
  // The gateway forgets the function that is idle longest when there are too many.
  gauges.Keep(kSloShare, functions);
  gauges.Keep(kSloDeadline, functions);
  gauges.Keep(kSloRequests, ends);
}

}  // namespace troupe::actors
