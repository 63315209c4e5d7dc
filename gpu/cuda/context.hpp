// One GPU's primary context, and what everything that works on it shares: the driver, events, whether the GPU
// is lost.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/cuda/driver.hpp"

namespace troupe::gpu::cuda {

// A CUDA event that returns to its context's pool with its last holder.
using EventHandle = std::shared_ptr<CUevent_st>;

// The libraries' context too (cuBLAS and cuDNN use the primary one). Thread-safe; outlives what was made with
// it.
class Context {
 public:
  static absl::StatusOr<std::unique_ptr<Context>> Make(std::shared_ptr<const Driver> driver, CUdevice device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] const Driver& driver() const { return *driver_; }
  [[nodiscard]] CUdevice device() const { return device_; }
  [[nodiscard]] int Attribute(CUdevice_attribute attribute) const;
  // Before calls on a thread that may not have made one yet.
  void Enter() const;

  // What a call gave, as a status that says what was being done. An error that no call on this context
  // recovers from is kept: from then on health() tells it.
  absl::Status Check(CUresult result, std::string_view doing) const;
  // The same for what the GPU did behind a call's back: any error there ends the context.
  absl::Status CheckWork(CUresult result, std::string_view doing) const;
  // OK, or why the GPU is of no use to this process any more.
  [[nodiscard]] absl::Status health() const;

  absl::StatusOr<EventHandle> MakeEvent();
  // What is on the stream so far.
  absl::StatusOr<EventHandle> Record(CUstream stream);
  // Until the GPU has come so far; not OK: the context is lost.
  absl::Status Await(const EventHandle& event) const;
  // On the GPU, of two that it has come to. At least one nanosecond: what was done took time.
  [[nodiscard]] Duration Between(const EventHandle& begin, const EventHandle& end) const;

 private:
  Context(std::shared_ptr<const Driver> driver, CUdevice device, CUcontext context)
      : driver_(std::move(driver)), device_(device), context_(context) {}
  void Lose(CUresult result, std::string_view doing) const;
  void GiveBack(CUevent event);

  const std::shared_ptr<const Driver> driver_;
  const CUdevice device_;
  const CUcontext context_;
  mutable std::mutex mutex_;
  mutable absl::Status health_;  // guarded by mutex_
  std::vector<CUevent> events_;  // guarded by mutex_; free ones
};

}  // namespace troupe::gpu::cuda
