#include "actors/daemon/swap_gauges.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

namespace {

Gauges::Labels With(const Gauges::Labels& labels, const std::string& name, const std::string& value) {
  auto all = labels;
  all[name] = value;
  return all;
}

// The node tells counts up to each bound; a histogram's buckets count what lies between two.
void ShowSwapTimes(const proto::SwapStatistics& swaps, const Gauges::Labels& mine, Gauges& gauges) {
  if (swaps.bounds_size() != swaps.seconds_le_size()) return;
  std::vector<double> counts;
  std::uint64_t below = 0;
  for (const auto up_to : swaps.seconds_le())
    counts.push_back(static_cast<double>(up_to - std::exchange(below, up_to)));
  counts.push_back(static_cast<double>(swaps.swaps() - below));
  gauges.SetHistogram("troupe_node_swap_seconds", "Times of the swaps that ended well.", mine,
                      {swaps.bounds().begin(), swaps.bounds().end()}, counts,
                      static_cast<double>(swaps.swap_ns()) * 1e-9);
}

void ShowCounts(const proto::SwapStatistics& swaps, const Gauges::Labels& mine, Gauges& gauges) {
  gauges.Set("troupe_node_swap_bytes_total", "Bytes of weights brought to GPUs.", mine,
             static_cast<double>(swaps.bytes()));
  gauges.Set("troupe_node_swaps_failed_total", "Swaps that failed.", mine,
             static_cast<double>(swaps.failed()));
  gauges.Set("troupe_node_no_fit_total", "Requests planned anew since a GPU had less room than planned.",
             mine, static_cast<double>(swaps.no_fits()));
  for (const auto& source : swaps.sources()) {
    if (source.source() == "ahead") {
      gauges.Set("troupe_node_prefetches_total", "Models brought to GPUs ahead of requests.", mine,
                 static_cast<double>(source.requests()));
      continue;
    }
    gauges.Set("troupe_node_model_was_total", "Requests given to GPUs, by where their model was.",
               With(mine, "source", source.source()), static_cast<double>(source.requests()));
  }
  for (const auto& evictions : swaps.evictions()) {
    gauges.Set("troupe_node_evictions_total", "Models evicted for others, by their class.",
               With(mine, "class", evictions.reason()), static_cast<double>(evictions.count()));
  }
}

void ShowRegion(const proto::HostRegionStatus& region, const Gauges::Labels& mine, Gauges& gauges) {
  // All states: a gauge that was set stays.
  std::map<std::string, double> states = {{"absent", 0},  {"fetching", 0}, {"on disk", 0},
                                          {"loading", 0}, {"held", 0},     {"leaving", 0}};
  for (const auto& model : region.models()) ++states[model.state()];
  for (const auto& [state, count] : states) {
    gauges.Set("troupe_host_region_models", "Models that the node adopted, by where they are.",
               With(mine, "state", state), count);
  }
  gauges.Set("troupe_host_region_loads_total", "Models brought from disk to the host region.", mine,
             static_cast<double>(region.loads()));
  gauges.Set("troupe_host_region_drops_total", "Models sent back to disk.", mine,
             static_cast<double>(region.drops()));
  gauges.Set("troupe_host_region_damaged_total", "Models found damaged on disk.", mine,
             static_cast<double>(region.damaged()));
}

void ShowGpu(const proto::GpuStatus& gpu, const Gauges::Labels& mine, Gauges& gauges) {
  const auto labels = With(mine, "gpu", absl::StrCat(gpu.gpu().index()));
  const auto& worker = gpu.worker();
  gauges.Set("troupe_gpu_link_busy_share", "Share of the last second in which its link was busy.", labels,
             gpu.link_share());
  gauges.Set("troupe_gpu_link_bytes_total", "Bytes over its link.", With(labels, "direction", "in"),
             static_cast<double>(worker.copy_in_bytes()));
  gauges.Set("troupe_gpu_link_bytes_total", "Bytes over its link.", With(labels, "direction", "out"),
             static_cast<double>(worker.copy_out_bytes()));
  gauges.Set("troupe_gpu_pool_bytes", "Memory taken for activations.", labels,
             static_cast<double>(worker.pool_bytes()));
  gauges.Set("troupe_gpu_pool_used_bytes", "Of it, in use.", labels,
             static_cast<double>(worker.pool_used_bytes()));
  gauges.Set("troupe_gpu_fragmentation", "Share of the free memory that one allocation cannot get.", labels,
             worker.fragmentation());
}

}  // namespace

void ShowSwaps(const proto::NodeDescription& node, Gauges& gauges) {
  const Gauges::Labels mine = {{"node", node.node()}};
  ShowSwapTimes(node.swaps(), mine, gauges);
  ShowCounts(node.swaps(), mine, gauges);
  ShowRegion(node.region(), mine, gauges);
  for (const auto& gpu : node.gpus()) ShowGpu(gpu, mine, gauges);
}

}  // namespace troupe::actors
