#include "actors/daemon/usage_gauges.hpp"

namespace troupe::actors {

// The node names a bounded number of functions; what the others used is counted together, without a name.
void ShowUsage(const proto::NodeDescription& node, Gauges& gauges) {
  for (const auto& amount : node.usage()) {
    const Gauges::Labels labels = {
        {"node", node.node()}, {"tenant", amount.tenant()}, {"function", amount.function()}};
    gauges.Set("troupe_usage_gpu_seconds_total",
               "GPU time that runs of the function used, times their share of the SMs.", labels,
               static_cast<double>(amount.gpu_ns()) * 1e-9);
    gauges.Set("troupe_usage_runs_total", "Runs of the function that computed.", labels,
               static_cast<double>(amount.runs()));
    gauges.Set("troupe_usage_bytes_moved_total", "Bytes that moved to and from GPUs for the function.",
               labels, static_cast<double>(amount.bytes_moved()));
    gauges.Set("troupe_usage_host_gib_seconds_total",
               "GiB of the function's model in the host region, times seconds.", labels,
               static_cast<double>(amount.host_kib_ms()) / (1024.0 * 1024.0) * 1e-3);
  }
}

}  // namespace troupe::actors
