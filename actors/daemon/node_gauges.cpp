#include "actors/daemon/node_gauges.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/daemon/swap_gauges.hpp"
#include "actors/daemon/usage_gauges.hpp"

namespace troupe::actors {

void NodeGauges::Count(const std::string& kind) {
  if (kind == "runtime-assigned") ++assigned_;
  if (kind == "runtime-reclaimed") ++reclaimed_;
  if (kind == "run-cut") ++cut_;
}

absl::Status NodeGauges::Health() {
  if (ready_gpus_ > 0) return absl::OkStatus();
  const std::lock_guard lock(problems_mutex_);
  return absl::UnavailableError(absl::StrCat("no GPU worker is up", problems_));
}

void NodeGauges::Show(const proto::NodeDescription& node, const HostRegion& host,
                      const WorkerRefusals& refusals, bool isolated) {
  const auto& load = node.load();
  const Gauges::Labels mine = {{"node", node.node()}};
  gauges_.Set("troupe_node_queue", "Requests that wait at the node.", mine,
              static_cast<double>(load.queued()));
  gauges_.Set("troupe_node_running", "Requests given to GPUs.", mine, static_cast<double>(load.running()));
  gauges_.Set("troupe_node_served_total", "Requests served since the start.", mine,
              static_cast<double>(load.served()));
  gauges_.Set("troupe_node_swaps_total", "Models brought to a GPU.", mine, static_cast<double>(load.swaps()));
  gauges_.Set("troupe_node_hits_total", "Requests that found their model resident.", mine,
              static_cast<double>(load.hits()));
  gauges_.Set("troupe_node_retried_total", "Requests run again after a worker died.", mine,
              static_cast<double>(load.retried()));
  gauges_.Set("troupe_runs_cut_total", "Runs that were cut at their function's run limit.", mine,
              static_cast<double>(cut_));
  gauges_.Set("troupe_host_region_bytes", "Size of the host region.", mine,
              static_cast<double>(host.usage.capacity.count()));
  gauges_.Set("troupe_host_region_huge_pages", "1 when the host region is made of huge pages.", mine,
              host.huge_pages);
  gauges_.Set("troupe_host_region_used_bytes", "Bytes of models in the host region.", mine,
              static_cast<double>(host.usage.used.count()));
  ShowSequences(node);
  ShowGpus(node);
  ShowSwaps(node, gauges_);
  ShowUsage(node, gauges_);
  refusals.Show(mine, gauges_);
  if (isolated) ShowRuntimes(node);
}

void NodeGauges::ShowSequences(const proto::NodeDescription& node) {
  std::uint64_t all = 0, in_memory = 0, on_gpus = 0;
  for (const auto& of : node.sequences()) {
    all += of.count();
    in_memory += of.in_memory();
    on_gpus += of.on_gpus();
  }
  const Gauges::Labels mine = {{"node", node.node()}};
  gauges_.Set("troupe_sequences", "Sequences of requests whose state the node has.", mine,
              static_cast<double>(all));
  gauges_.Set("troupe_sequences_in_memory", "Those whose state is in the host's memory, or on a GPU.", mine,
              static_cast<double>(in_memory));
  gauges_.Set("troupe_sequences_on_gpus", "Those whose state is on a GPU.", mine,
              static_cast<double>(on_gpus));
}

void NodeGauges::ShowPulls(const std::string& node, const PullCounts& counts, std::uint64_t sent) {
  for (const auto& [source, bytes] :
       {std::pair("nodes", &counts.from_nodes), std::pair("manager", &counts.from_manager)}) {
    gauges_.Set("troupe_model_bytes_fetched_total",
                "Bytes of models that came to this node's disk, by who sent them.",
                {{"node", node}, {"from", source}}, static_cast<double>(bytes->load()));
  }
  gauges_.Set("troupe_model_bytes_sent_total", "Bytes of models that this process sent to nodes.",
              {{"node", node}}, static_cast<double>(sent));
  gauges_.Set("troupe_model_ranges_wrong_total", "Ranges of models whose bytes were not those of the model.",
              {{"node", node}}, static_cast<double>(counts.wrong.load()));
}

void NodeGauges::ShowRuntimes(const proto::NodeDescription& node) {
  const Gauges::Labels mine = {{"node", node.node()}};
  gauges_.Set("troupe_node_runtimes_assigned_total", "Warm workers that were assigned to a key.", mine,
              static_cast<double>(assigned_));
  gauges_.Set("troupe_node_runtimes_reclaimed_total",
              "Workers that were replaced, since others had served there.", mine,
              static_cast<double>(reclaimed_));
  for (const auto& gpu : node.gpus()) {
    const auto warm = std::count_if(gpu.runtimes().begin(), gpu.runtimes().end(), [](const auto& runtime) {
      return runtime.key().empty() && runtime.state() == "ready";
    });
    gauges_.Set("troupe_gpu_warm_runtimes", "Workers of the GPU that serve no key yet.",
                {{"node", node.node()}, {"gpu", std::to_string(gpu.gpu().index())}},
                static_cast<double>(warm));
  }
}

void NodeGauges::ShowGpus(const proto::NodeDescription& node) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - measured_).count();
  double sum = 0, squares = 0;
  unsigned ready = 0;
  std::string problems;
  for (const auto& gpu : node.gpus()) {
    if (!gpu.gpu().problem().empty())
      absl::StrAppend(&problems, "; GPU ", gpu.gpu().index(), " is unfit: ", gpu.gpu().problem());
    const Gauges::Labels labels = {{"node", node.node()}, {"gpu", std::to_string(gpu.gpu().index())}};
    const auto& worker = gpu.worker();
    const bool up = gpu.gpu().state() == "ready";
    ready += up;
    // A new worker counts from zero again.
    auto& before = busy_[gpu.gpu().index()];
    const auto moved = worker.busy_ns() >= before ? worker.busy_ns() - before : worker.busy_ns();
    before = worker.busy_ns();
    const double share = std::min(1.0, static_cast<double>(moved) * 1e-9 / seconds);
    sum += share;
    squares += share * share;
    gauges_.Set("troupe_gpu_up", "1 while the GPU's worker is ready.", labels, up);
    gauges_.Set("troupe_gpu_busy_share", "Share of the last second in which the GPU computed.", labels,
                share);
    gauges_.Set("troupe_gpu_resident_models", "Models on the GPU.", labels, worker.resident_size());
    gauges_.Set("troupe_gpu_free_bytes", "Free memory of the GPU.", labels,
                static_cast<double>(worker.free_bytes()));
    gauges_.Set("troupe_gpu_restarts_total", "Times the GPU's worker was started again.", labels,
                static_cast<double>(gpu.restarts()));
  }
  const double n = std::max(1, node.gpus_size());
  gauges_.Set("troupe_gpu_busy_share_variance", "Variance of the busy share over the node's GPUs.",
              {{"node", node.node()}}, squares / n - (sum / n) * (sum / n));
  measured_ = now;
  ready_gpus_ = ready;
  const std::lock_guard lock(problems_mutex_);
  problems_ = std::move(problems);
}

}  // namespace troupe::actors
