// The fake driver's graphs: what is put on a stream that is captured is kept instead, and done in order at
// each launch. What may not be done meanwhile spoils the capture, as it does with a GPU.
#include <map>
#include <mutex>
#include <utility>

#include "gpu/cuda/fake/fake_driver.hpp"

namespace troupe::gpu::cuda::fake {
namespace {

thread_local Queue* captured_here = nullptr;

struct GraphCounts {
  std::mutex mutex;
  FakeGraphCounts counts;
};
GraphCounts& Counts() {
  static GraphCounts& counts = *new GraphCounts;
  return counts;
}
void Count(std::uint64_t FakeGraphCounts::*which, std::uint64_t by = 1) {
  const std::lock_guard lock(Counts().mutex);
  Counts().counts.*which += by;
}

using Nodes = std::vector<GraphNode>;
struct Executable {
  std::shared_ptr<const Nodes> nodes;
};
Nodes& NodesOf(CUgraph graph) {
  return *reinterpret_cast<Nodes*>(graph);
}
Executable& ExecutableOf(CUgraphExec executable) {
  return *reinterpret_cast<Executable*>(executable);
}

}  // namespace

CUresult NotWhileCapturing() {
  if (captured_here == nullptr) return CUDA_SUCCESS;
  captured_here->SpoilCapture();
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void Queue::Push(std::function<void()> work, const void* kind) {
  {
    const std::lock_guard lock(mutex_);
    if (capture_ != nullptr) {
      capture_->push_back({kind, std::move(work)});
      return;
    }
    work_.push_back(std::move(work));
    ++pushed_;
  }
  changed_.notify_all();
}
bool Queue::Computes(std::uint64_t copies) {
  const std::lock_guard lock(mutex_);
  return capture_ == nullptr && std::exchange(copies_, copies) != copies;
}
bool Queue::BeginCapture() {
  const std::lock_guard lock(mutex_);
  if (capture_ != nullptr) return false;
  capture_ = std::make_unique<Nodes>();
  spoilt_ = false;
  return true;
}
bool Queue::capturing() {
  const std::lock_guard lock(mutex_);
  return capture_ != nullptr;
}
void Queue::SpoilCapture() {
  const std::lock_guard lock(mutex_);
  spoilt_ = true;
}
std::unique_ptr<std::vector<GraphNode>> Queue::EndCapture() {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Nodes> nodes = std::move(capture_);
  if (spoilt_) nodes.reset();
  return nodes;
}

}  // namespace troupe::gpu::cuda::fake

namespace fake = troupe::gpu::cuda::fake;
using fake::FakeGraphCounts;

extern "C" {

void FakeCudaGraphCounts(FakeGraphCounts* counts) {
  const std::lock_guard lock(fake::Counts().mutex);
  *counts = fake::Counts().counts;
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  if (mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL || fake::TheState().config.no_capture != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (fake::captured_here != nullptr || !fake::QueueOf(stream).BeginCapture())
    return CUDA_ERROR_ILLEGAL_STATE;
  fake::captured_here = &fake::QueueOf(stream);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  *graph = nullptr;
  if (fake::captured_here != &fake::QueueOf(stream)) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  fake::captured_here = nullptr;
  auto nodes = fake::QueueOf(stream).EndCapture();
  if (nodes == nullptr) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  fake::Count(&FakeGraphCounts::captured);
  fake::Count(&FakeGraphCounts::nodes, nodes->size());
  *graph = reinterpret_cast<CUgraph>(nodes.release());
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphDestroy(CUgraph graph) {
  delete &fake::NodesOf(graph);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, unsigned long long flags) {
  if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *executable = reinterpret_cast<CUgraphExec>(
      new fake::Executable{std::make_shared<fake::Nodes>(fake::NodesOf(graph))});
  fake::Count(&FakeGraphCounts::instantiated);
  fake::Count(&FakeGraphCounts::alive);
  return CUDA_SUCCESS;
}
// Only what its nodes do it to may change: launches under way do what they were made with.
CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  const fake::Nodes& now = *fake::ExecutableOf(executable).nodes;
  const fake::Nodes& next = fake::NodesOf(graph);
  bool same = now.size() == next.size();
  for (std::size_t i = 0; same && i < now.size(); ++i) same = now[i].kind == next[i].kind;
  if (!same) {
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  fake::ExecutableOf(executable).nodes = std::make_shared<fake::Nodes>(next);
  fake::Count(&FakeGraphCounts::updated);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  fake::CountCall();
  if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
  fake::CountBurst(stream);
  fake::QueueOf(stream).Push([nodes = fake::ExecutableOf(executable).nodes] {
    for (const fake::GraphNode& node : *nodes) node.work();
  });
  fake::Count(&FakeGraphCounts::launched);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec executable) {
  delete &fake::ExecutableOf(executable);
  fake::Count(&FakeGraphCounts::alive, static_cast<std::uint64_t>(-1));
  return CUDA_SUCCESS;
}

}  // extern "C"
