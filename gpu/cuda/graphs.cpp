#include "gpu/cuda/graphs.hpp"

#include <algorithm>
#include <utility>

#include "base/status.hpp"

namespace troupe::gpu::cuda {
namespace {

// Runs of a plan find their memory in a few places: each of these places is worth a recording.
constexpr std::size_t kRecordings = 2;
constexpr std::size_t kSeen = 4;

}  // namespace

absl::StatusOr<CUgraph> Capture(Context& context, CUstream stream,
                                const std::function<absl::Status()>& enqueue) {
  const Driver& driver = context.driver();
  TROUPE_RETURN_IF_ERROR(context.Check(
      driver.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "recording a launch"));
  absl::Status status = enqueue();
  CUgraph graph = nullptr;
  const CUresult ended = driver.cuStreamEndCapture(stream, &graph);
  if (status.ok()) status = context.Check(ended, "recording a launch");
  if (status.ok()) return graph;
  if (graph != nullptr) (void)driver.cuGraphDestroy(graph);
  return status;
}

GraphSet::~GraphSet() {
  for (std::size_t segment = 0; segment < executables_.size(); ++segment) Destroy(segment);
}

void GraphSet::Destroy(std::size_t segment) {
  if (executables_[segment] == nullptr) return;
  context_.Later([&driver = context_.driver(), graph = std::exchange(executables_[segment], nullptr)] {
    (void)driver.cuGraphExecDestroy(graph);
  });
  --budget_.alive;
}

absl::Status GraphSet::Launch(std::size_t segment, CUstream stream) const {
  return context_.Check(context_.driver().cuGraphLaunch(executables_[segment], stream), "launching a graph");
}

absl::Status GraphSet::Take(std::size_t segment, CUgraph graph) {
  const Driver& driver = context_.driver();
  executables_.resize(std::max(executables_.size(), segment + 1));
  if (executables_[segment] != nullptr) {
    CUgraphExecUpdateResultInfo info{};
    if (driver.cuGraphExecUpdate(executables_[segment], graph, &info) == CUDA_SUCCESS)
      return absl::OkStatus();
    Destroy(segment);
  }
  TROUPE_RETURN_IF_ERROR(
      context_.Check(driver.cuGraphInstantiate(&executables_[segment], graph, 0), "making a graph"));
  ++budget_.alive;
  return absl::OkStatus();
}

std::shared_ptr<const GraphSet> PlanGraphs::Find(const LaunchKey& key, const Enqueue& enqueue) {
  if (!budget_.on || refused_) return nullptr;
  const auto found = std::ranges::find(recorded_, key, &Recorded::key);
  if (found != recorded_.end()) {
    recorded_.splice(recorded_.begin(), recorded_, found);
    return found->graphs;
  }
  if (!SeenBefore(key)) return nullptr;
  std::shared_ptr<GraphSet> graphs = Room(key);
  if (graphs == nullptr) return nullptr;
  if (!Record(key, enqueue, *graphs).ok()) {
    refused_ = true;
    recorded_.clear();
    return nullptr;
  }
  recorded_.push_front({key, graphs});
  return graphs;
}

// What was launched once may never be again: the first launch also makes what libraries make once.
bool PlanGraphs::SeenBefore(const LaunchKey& key) {
  if (const auto found = std::ranges::find(seen_, key); found != seen_.end()) {
    seen_.erase(found);
    return true;
  }
  seen_.push_front(key);
  if (seen_.size() > kSeen) seen_.pop_back();
  return false;
}

// Null: the device has as many as it may have, and this plan has none to give.
std::shared_ptr<GraphSet> PlanGraphs::Room(const LaunchKey& key) {
  const bool more =
      recorded_.size() < kRecordings && budget_.alive.load() + key.ends.size() <= GraphBudget::kMost;
  if (more) return std::make_shared<GraphSet>(context_, budget_);
  if (recorded_.empty()) return nullptr;
  std::shared_ptr<GraphSet> oldest = std::move(recorded_.back().graphs);
  recorded_.pop_back();
  for (std::size_t segment = key.ends.size(); segment < oldest->executables_.size(); ++segment)
    oldest->Destroy(segment);
  return oldest;
}

absl::Status PlanGraphs::Record(const LaunchKey& key, const Enqueue& enqueue, GraphSet& graphs) const {
  std::size_t begin = 0;
  for (std::size_t segment = 0; segment < key.ends.size(); ++segment) {
    const std::size_t end = key.ends[segment];
    TROUPE_ASSIGN_OR_RETURN(const CUgraph graph,
                            Capture(context_, key.stream, [&] { return enqueue(begin, end); }));
    const absl::Status taken = graphs.Take(segment, graph);
    (void)context_.driver().cuGraphDestroy(graph);
    TROUPE_RETURN_IF_ERROR(taken);
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace troupe::gpu::cuda
