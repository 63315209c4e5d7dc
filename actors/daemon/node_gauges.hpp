// The measures of a node on its operations port (docs/http.md lists them), and what its readiness says of GPUs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "actors/daemon/gauges.hpp"
#include "actors/daemon/worker_refusals.hpp"
#include "actors/node/model_pulls.hpp"
#include "proto/admin.pb.h"
#include "storage/host_repository.hpp"

namespace troupe::actors {

// Count: any thread. Show: one thread. Health: any thread.
class NodeGauges {
 public:
  explicit NodeGauges(std::shared_ptr<prometheus::Registry> registry) : gauges_(std::move(registry)) {}

  // The node told of an event of this kind.
  void Count(const std::string& kind);
  struct HostRegion {
    storage::HostRepository::Usage usage;
    bool huge_pages = false;
  };
  // `isolated`: workers serve keys.
  void Show(const proto::NodeDescription& node, const HostRegion& host, const WorkerRefusals& refusals,
            bool isolated);
  // `sent`: bytes that the node has sent to others.
  void ShowPulls(const std::string& node, const PullCounts& counts, std::uint64_t sent);
  // Unavailable when no GPU's worker was up at the last Show, with what is wrong with the GPUs.
  [[nodiscard]] absl::Status Health();

 private:
  void ShowRuntimes(const proto::NodeDescription& node);
  void ShowSequences(const proto::NodeDescription& node);
  void ShowGpus(const proto::NodeDescription& node);

  Gauges gauges_;
  std::map<unsigned, std::int64_t> busy_;  // by GPU, at the last Show
  std::chrono::steady_clock::time_point measured_ = std::chrono::steady_clock::now();
  std::atomic<unsigned> ready_gpus_{0};
  std::mutex problems_mutex_;
  std::string problems_;                                   // guarded by problems_mutex_; for people
  std::atomic<std::uint64_t> assigned_{0}, reclaimed_{0};  // runtimes
  std::atomic<std::uint64_t> cut_{0};                      // runs
};

}  // namespace troupe::actors
