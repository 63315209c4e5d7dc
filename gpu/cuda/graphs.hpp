// CUDA GRAPHS of a plan: what its launches put on a stream, recorded once and from then on put there with one
// call for each segment.
//
//   a launch -> plain; one like it -> recorded, and every further one replays it
//
// A recording holds for the addresses, the stream and the marks that it was made with: memory that is handed
// out anew may lie elsewhere. When there is room for no further recording, the least recently used one of the
// plan gets the new addresses, which costs less than to make one.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/cuda/context.hpp"

namespace troupe::gpu::cuda {

// What `enqueue` puts on the stream, instead of executing it. Calls of other threads are not recorded.
absl::StatusOr<CUgraph> Capture(Context& context, CUstream stream,
                                const std::function<absl::Status()>& enqueue);

// What launches have in common that one recording serves.
struct LaunchKey {
  CUstream stream = nullptr;  // the SMs that it runs on
  CUstream lane = nullptr;    // its libraries' workspaces
  std::vector<std::uintptr_t> addresses;
  std::vector<std::size_t> ends;  // of the segments, in steps
  unsigned blocks = 0;            // of our own kernels, at most
  friend bool operator==(const LaunchKey&, const LaunchKey&) = default;
};

// Of all plans of a device.
struct GraphBudget {
  // Executable graphs at a time, each of which takes some device memory; launches beyond are plain.
  static constexpr std::size_t kMost = 512;
  bool on = true;
  std::atomic<std::size_t> alive{0};
};

// The executable graphs of one recording, one per segment. Outlives the launches that are under way.
class GraphSet {
 public:
  GraphSet(Context& context, GraphBudget& budget) : context_(context), budget_(budget) {}
  ~GraphSet();
  GraphSet(const GraphSet&) = delete;
  GraphSet& operator=(const GraphSet&) = delete;
  absl::Status Launch(std::size_t segment, CUstream stream) const;

 private:
  friend class PlanGraphs;
  // `graph` as the segment's from now on: by an update of what there is, or made anew.
  absl::Status Take(std::size_t segment, CUgraph graph);
  void Destroy(std::size_t segment);

  Context& context_;
  GraphBudget& budget_;
  std::vector<CUgraphExec> executables_;
};

// Of one plan on one CUDA stream, where its launches come one at a time.
class PlanGraphs {
 public:
  // Puts the steps from `begin` to `end` on the stream of the launch.
  using Enqueue = std::function<absl::Status(std::size_t begin, std::size_t end)>;

  PlanGraphs(Context& context, GraphBudget& budget) : context_(context), budget_(budget) {}
  // What a launch with this key replays; null: it is to be put on the stream step by step. Recording executes
  // nothing, and what cannot be recorded is launched plainly for ever.
  std::shared_ptr<const GraphSet> Find(const LaunchKey& key, const Enqueue& enqueue);

 private:
  struct Recorded {
    LaunchKey key;
    std::shared_ptr<GraphSet> graphs;
  };
  bool SeenBefore(const LaunchKey& key);
  std::shared_ptr<GraphSet> Room(const LaunchKey& key);
  absl::Status Record(const LaunchKey& key, const Enqueue& enqueue, GraphSet& graphs) const;

  Context& context_;
  GraphBudget& budget_;
  std::deque<LaunchKey> seen_;    // launched plainly, the latest first
  std::list<Recorded> recorded_;  // most recently used first
  bool refused_ = false;
};

}  // namespace troupe::gpu::cuda
