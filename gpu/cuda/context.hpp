// One GPU's primary context, and what everything that works on it shares: the driver, events, whether the GPU
// is lost.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/cuda/driver.hpp"

namespace troupe::gpu::cuda {

// What an event of the driver is for. A timed one costs the GPU more.
enum class EventKind { kOrder, kTimed };
// A CUDA event that returns to its context's pool with its last holder.
using EventHandle = std::shared_ptr<CUevent_st>;

// The libraries' context too (cuBLAS and cuDNN use the primary one). Thread-safe; outlives what was made with
// it.
class Context {
 public:
  // Null when the driver makes none: `result` says why.
  static std::unique_ptr<Context> Make(std::shared_ptr<const Driver> driver, CUdevice device,
                                       CUresult& result);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] const Driver& driver() const { return *driver_; }
  [[nodiscard]] CUdevice device() const { return device_; }
  [[nodiscard]] int Attribute(CUdevice_attribute attribute) const;
  // Before calls on a thread that may not have made one yet. Costs a call once for each thread.
  void Enter() const;
  // The same after another context was made current on this thread.
  void Return() const;

  // What a call gave, as a status that says what was being done. An error that no call on this context
  // recovers from is kept: from then on health() tells it.
  absl::Status Check(CUresult result, std::string_view doing) const;
  // The same for what the GPU did behind a call's back: any error there ends the context.
  absl::Status CheckWork(CUresult result, std::string_view doing) const;
  // OK, or why the GPU is of no use to this process any more.
  [[nodiscard]] absl::Status health() const;

  absl::StatusOr<EventHandle> MakeEvent(EventKind kind = EventKind::kOrder);
  // What is on the stream so far.
  absl::StatusOr<EventHandle> Record(CUstream stream, EventKind kind = EventKind::kOrder);
  // Until the GPU has come so far; not OK: the context is lost.
  absl::Status Await(const EventHandle& event) const;
  // On the GPU, of two timed ones that it has come to. At least one nanosecond: what was done took time.
  [[nodiscard]] Duration Between(const EventHandle& begin, const EventHandle& end) const;

  // Makes `call` on a thread of its own, one after the other: it frees something of the driver's that nothing uses
  // any more, or takes what will be needed. Such calls wait for all that the GPU has to do. All are made before the
  // context ends.
  void Later(std::function<void()> call);
  // Waits until all of them were made, and so for the GPU: for what finds no memory otherwise. Within one of them:
  // not at all.
  void AwaitLater();

 private:
  Context(std::shared_ptr<const Driver> driver, CUdevice device, CUcontext context)
      : driver_(std::move(driver)), device_(device), context_(context), number_(++made_) {}
  static inline std::atomic<std::uint64_t> made_{0};
  void Lose(CUresult result, std::string_view doing) const;
  void GiveBack(CUevent event, EventKind kind);
  void ServeLater();
  struct LaterCalls {  // what Later was given
    std::condition_variable changed;
    std::deque<std::function<void()>> calls;  // the first one is under way
    bool stopping = false;
    std::thread thread;  // from the first call on
  };

  const std::shared_ptr<const Driver> driver_;
  const CUdevice device_;
  const CUcontext context_;
  const std::uint64_t number_;  // of the contexts of this process
  mutable std::mutex mutex_;
  mutable absl::Status health_;                 // guarded by mutex_, as all below
  std::array<std::vector<CUevent>, 2> events_;  // free ones, by kind
  LaterCalls later_;
};

}  // namespace troupe::gpu::cuda
