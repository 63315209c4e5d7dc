// A driver without a GPU: the calls of gpu/cuda/driver.hpp over host memory. What it says it copied it has
// copied, streams run beside each other and in order, memory is bounded and mapped as it was asked for; it
// says nothing about speed. For tests, as libcuda.so.1.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::gpu::cuda::fake {

// "devices=1,major=7": from the environment's TROUPE_FAKE_CUDA, or from FakeCudaConfigure.
struct Config {
  std::uint64_t version = 13000;
  std::uint64_t init = 0;  // what cuInit gives
  std::uint64_t devices = 2;
  std::uint64_t major = 9;
  std::uint64_t memory = 256 << 20;  // of each GPU
  std::uint64_t held = 0;            // of it, by others
  std::uint64_t refuse = 0;      // allocations that are refused although there is room: all from this one on
  std::uint64_t lost_after = 0;  // copies; then the GPU is lost
  std::uint64_t no_capture = 0;  // streams cannot be captured
  std::uint64_t sms = 132;
  std::uint64_t green = 1000;         // green contexts there can be; 0: it knows none
  std::uint64_t moves_addresses = 0;  // reservations are not given where they were asked for
};

// Of graphs since the process began; `alive` are executable ones.
struct FakeGraphCounts {
  std::uint64_t captured = 0;
  std::uint64_t nodes = 0;  // of what was captured
  std::uint64_t instantiated = 0;
  std::uint64_t updated = 0;
  std::uint64_t launched = 0;
  std::uint64_t alive = 0;
};

// What one event was last recorded as.
struct Record {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  std::int64_t at_ns = 0;
  void Reach();
  void Wait();
};

// One operation of a graph; operations of different kinds do not replace each other.
struct GraphNode {
  const void* kind = nullptr;
  std::function<void()> work;
};

class Queue {
 public:
  Queue();
  ~Queue();
  // Done in order; while the queue is captured, kept instead.
  void Push(std::function<void()> work, const void* kind = nullptr);
  void Drain();
  [[nodiscard]] bool BeginCapture();
  [[nodiscard]] bool capturing();
  void SpoilCapture();
  // Null when it was spoilt.
  std::unique_ptr<std::vector<GraphNode>> EndCapture();

 private:
  void Serve();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false;
  bool stopping_ = false;
  std::unique_ptr<std::vector<GraphNode>> capture_;
  bool spoilt_ = false;
  std::thread thread_;
};

inline Queue& QueueOf(CUstream stream) {
  return *reinterpret_cast<Queue*>(stream);
}

struct State {
  explicit State(const Config& config) : config(config) {}
  std::mutex mutex;
  Config config;
  std::uint64_t used = 0;     // of all GPUs together: a test has one at a time, or small ones
  std::uint64_t created = 0;  // units
  std::uint64_t copies = 0;
  std::uint64_t largest_grid = 0;                                  // in blocks
  bool illegal = false;                                            // a kernel read where nothing is
  std::map<std::uint64_t, std::pair<int, std::uint64_t>> handles;  // handle -> its file, its size
  std::uint64_t next_handle = 1;
  struct Pinned {
    std::uint64_t size = 0;
    bool read_only = false;
  };
  std::map<std::uintptr_t, Pinned> registered;  // host memory
  std::uint64_t splits = 0;                     // of the SMs
  std::uint64_t green_contexts = 0;
  std::map<CUstream, std::set<std::uint32_t>> green_streams;  // SMs
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t>
      launches;  // by first SM and number of them
};
State& TheState();
// CUDA_SUCCESS, or what a lost GPU answers.
CUresult Alive();
// What it answers to calls that may not be made while this thread captures a stream; they spoil the capture.
CUresult NotWhileCapturing();
// A kernel was put on this stream.
void CountLaunch(CUstream stream);
// Counts towards `lost_after`.
void CountCopy();
// Null when it is not registered.
[[nodiscard]] const State::Pinned* Registered(const void* begin, std::size_t size);

}  // namespace troupe::gpu::cuda::fake
