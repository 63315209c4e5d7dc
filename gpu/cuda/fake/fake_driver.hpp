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
  std::uint64_t green = 1000;            // green contexts there can be; 0: it knows none
  std::uint64_t moves_addresses = 0;     // reservations are not given where they were asked for
  std::uint64_t unit = 2 << 20;          // of physical memory
  std::uint64_t read_only_register = 0;  // READ_ONLY_HOST_REGISTER_SUPPORTED
  std::uint64_t no_register = 0;         // no memory of the host can be registered
  // Registrations of so many bytes and more wait while there is a file of the name that TROUPE_FAKE_CUDA_HOLD says.
  std::uint64_t held_register = 0;
  std::uint64_t compute_mode = 0;  // CUcomputemode
  std::uint64_t no_context = 0;    // what the driver answers instead of a primary context
  std::uint64_t mps = 0;           // contexts are those of a server that several processes share
  std::uint64_t mig = 0;           // each device is an instance of a GPU
  std::uint64_t cublas = 13;       // major version of the library, as it tells it
  std::uint64_t cublas_lt = 13;
  std::uint64_t cudnn = 9;
  std::uint64_t no_mapping = 0;      // no virtual memory management
  std::uint64_t context_bytes = 0;   // of device memory, that the primary context takes
  std::uint64_t green_bytes = 0;     // and each green context
  std::uint64_t no_words = 0;        // streams wait for no words of memory and write none
  std::uint64_t no_green_words = 0;  // of green contexts
  std::uint64_t held_writes = 0;     // a stream that waits for a word holds up the others' writes
  std::uint64_t descriptors = 0;     // those of memory are counted when it is exported and imported
  std::uint64_t pins = 0;  // copies take the pages that were there at the registration (for small memory)
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

// Calls that take long on a real driver, since the process began.
struct FakeMemoryCounts {
  std::uint64_t contexts = 0;  // primary ones that were made
  std::uint64_t created = 0;   // units
  std::uint64_t mapped = 0;
  std::uint64_t unmapped = 0;    // calls: one takes many units
  std::uint64_t registered = 0;  // ranges of host memory
  std::uint64_t unregistered = 0;
};

// Descriptors of memory that was exported: the most there were since the machine was set, as its words ask.
struct FakeDescriptorCounts {
  std::uint64_t open = 0;        // of this process, at a call that exports or imports
  std::uint64_t imported = 0;    // in all
  std::uint64_t on_the_way = 0;  // exported and not imported yet
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

// How often the driver was called where launches pass, and how: since the process began.
struct FakeCallCounts {
  std::uint64_t calls =
      0;  // asking for one event again and again counts once, and waiting for it then is no other
  std::uint64_t waits = 0;               // of the host, for events
  std::uint64_t synchronising = 0;       // calls that wait for all that the GPU has to do
  std::uint64_t synchronising_here = 0;  // of them, by the calling thread
  // Of them, by threads that put kernels on streams: also what such a thread did before its first kernel.
  std::uint64_t synchronising_launches = 0;
  std::uint64_t cold_launches = 0;  // of kernels whose code was not loaded yet
  std::uint64_t timed_events = 0;   // recorded
  std::uint64_t staged = 0;         // copies to the GPU from memory that is not registered
  std::uint64_t events = 0;         // recorded
  // Times that kernels or graphs were put on a stream although copies had ended since the last ones were put there: a
  // host that is told of a copy's end, and goes on then, adds one.
  std::uint64_t bursts = 0;
};

class Queue {
 public:
  explicit Queue(CUcontext context);
  ~Queue();
  // Done in order; while the queue is captured, kept instead.
  void Push(std::function<void()> work, const void* kind = nullptr);
  void Drain();
  [[nodiscard]] CUcontext context() const { return context_; }
  // Operations that were pushed, and those of them that are done.
  [[nodiscard]] std::uint64_t pushed();
  [[nodiscard]] std::uint64_t done();
  // Kernels are put there, so many copies having ended so far. False: as many as at the last time.
  [[nodiscard]] bool Computes(std::uint64_t copies);
  [[nodiscard]] bool BeginCapture();
  [[nodiscard]] bool capturing();
  void SpoilCapture();
  // Null when it was spoilt.
  std::unique_ptr<std::vector<GraphNode>> EndCapture();

 private:
  void Serve();
  const CUcontext context_;
  std::uint64_t pushed_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t copies_ = 0;  // that had ended when kernels were put there last
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false;
  bool stopping_ = false;
  std::unique_ptr<std::vector<GraphNode>> capture_;
  bool spoilt_ = false;
  std::thread thread_;
};

// The pages of a registered range, held as they were when it was registered: what is mapped there later is not
// seen, as a GPU does not see it.
class PinnedPages {
 public:
  // Null when the system does not let so many be held.
  static std::shared_ptr<const PinnedPages> Hold(const void* begin, std::size_t size);
  ~PinnedPages();
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;
  void Read(std::uintptr_t address, std::size_t size, char* to) const;

 private:
  explicit PinnedPages(std::uintptr_t begin) : begin_(begin) {}
  std::uintptr_t begin_;
  std::vector<std::pair<int, int>> pipes_;  // each holds the next kHeld bytes
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
  std::map<CUdeviceptr, std::uint64_t> allocated;  // by cuMemAlloc
  std::set<const void*> loaded;                    // kernels whose code is
  std::uint64_t connections = 0;                   // to the hardware, as the environment said at cuInit
  std::uint64_t compute_mode = 0;                  // CUcomputemode
  std::uint64_t no_context = 0;                    // what the driver answers instead of a primary context
  std::uint64_t no_mapping = 0;                    // no virtual memory management
  std::uint64_t context_bytes = 0;                 // that the primary context has taken
  std::uint64_t contexts = 0;                      // times that the primary context is retained
  std::uint64_t copies = 0;
  std::uint64_t largest_grid = 0;                                  // in blocks
  bool illegal = false;                                            // a kernel read where nothing is
  std::map<std::uint64_t, std::pair<int, std::uint64_t>> handles;  // handle -> its file, its size
  std::uint64_t next_handle = 1;
  std::uint64_t exported = 0;
  FakeDescriptorCounts descriptors;
  FakeMemoryCounts memory_calls;
  struct Pinned {
    std::uint64_t size = 0;
    bool read_only = false;
    std::shared_ptr<const PinnedPages> pages{};  // null: they are read where they are mapped
  };
  std::map<std::uintptr_t, Pinned> registered;  // host memory
  std::uint64_t registered_bytes = 0;           // of it, by the program
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
// The context of this thread; null: none was made current.
[[nodiscard]] CUcontext Current();
// One call where launches pass; with the event that it asks for.
void CountCall(CUevent asked = nullptr, bool waits = false);
void CountEvent(bool timed);
void CountStaged();
// Waits for all that was put on any stream so far, as calls do that free something. What may not be made while this
// thread captures a stream is refused.
CUresult Synchronise();
void CountSynchronising();
// The code of this kernel is needed: on a stream that is captured it is loaded, on any other that is late.
void Load(const void* kernel, bool captured);
// A kernel was put on this stream.
void CountLaunch(CUstream stream);
// Counts towards `lost_after`.
void CountCopy();
// Kernels or a graph are put on this stream, by whichever library.
void CountBurst(CUstream stream);
// What the driver makes of host memory in a copy. A copy that begins in registered memory and leaves it, or
// reaches it, is refused: a range is either within one registration or in none.
struct HostMemory {
  enum class Kind { kPageable, kRegistered, kAcross } kind = Kind::kPageable;
  bool read_only = false;
  std::shared_ptr<const PinnedPages> pages{};
};
[[nodiscard]] HostMemory HostMemoryAt(const void* begin, std::size_t size);

}  // namespace troupe::gpu::cuda::fake
