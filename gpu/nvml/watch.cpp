#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/nvml/management.hpp"

namespace troupe::gpu {
namespace {

// How long one wait lasts: an end, and what no event tells of, is seen as soon.
constexpr unsigned kLookEveryMs = 500;

}  // namespace

// NVIDIA's table of Xids tells the application's own faults from the GPU's: an exception or a page fault of
// what it ran, its channel torn down, and what follows from that.
XidOf KindOf(std::uint64_t xid) {
  switch (xid) {
    case 13:   // exception in a kernel
    case 31:   // page fault
    case 43:   // stopped
    case 45:   // cleaned up after an earlier one
    case 68:   // exception in a video decoder
    case 109:  // context switch timed out
      return XidOf::kProgram;
    case 48:  // uncorrectable error of the memory
    case 63:  // a row was exchanged, or will be
    case 94:  // the error was contained: it ended the programs that used the memory
      return XidOf::kMemory;
    default:
      return XidOf::kGpu;
  }
}

absl::StatusOr<std::unique_ptr<GpuWatch>> GpuWatch::Start(std::shared_ptr<const GpuManagement> management) {
  const nvml::Calls& calls = management->calls_;
  nvml::EventSet events = nullptr;
  TROUPE_RETURN_IF_ERROR(management->Check(calls.nvmlEventSetCreate(&events), "making a set of events"));
  for (const nvml::Device device : management->devices_) {
    // One without ECC tells of Xids alone.
    if (calls.nvmlDeviceRegisterEvents(device, nvml::kCriticalXid | nvml::kDoubleBitError, events) ==
        nvml::kSuccess)
      continue;
    const absl::Status registered =
        management->Check(calls.nvmlDeviceRegisterEvents(device, nvml::kCriticalXid, events),
                          "asking to be told of critical errors");
    if (registered.ok()) continue;
    (void)calls.nvmlEventSetFree(events);
    return registered;
  }
  return std::unique_ptr<GpuWatch>(new GpuWatch(std::move(management), events));
}

GpuWatch::GpuWatch(std::shared_ptr<const GpuManagement> management, nvml::EventSet events)
    : management_(std::move(management)),
      events_(events),
      problems_(management_->gpus()),
      thread_([this] { Watch(); }) {}

GpuWatch::~GpuWatch() {
  stopping_ = true;
  thread_.join();
  (void)management_->calls_.nvmlEventSetFree(events_);
}

std::string GpuWatch::ProblemOf(std::uint32_t gpu) const {
  const std::lock_guard lock(mutex_);
  return gpu < problems_.size() ? problems_[gpu] : std::string();
}

// The first error explains the errors that follow.
void GpuWatch::Note(std::uint32_t gpu, const std::string& problem) {
  const std::lock_guard lock(mutex_);
  if (problems_[gpu].empty()) problems_[gpu] = problem;
}

void GpuWatch::Watch() {
  const nvml::Calls& calls = management_->calls_;
  while (!stopping_) {
    for (std::uint32_t gpu = 0; gpu < management_->gpus(); ++gpu)
      if (const std::string problem = management_->Problem(gpu); !problem.empty()) Note(gpu, problem);
    nvml::Event event{};
    const nvml::Return waited = calls.nvmlEventSetWait_v2(events_, &event, kLookEveryMs);
    if (waited == nvml::kTimeout) continue;
    if (waited != nvml::kSuccess) {
      // A GPU that fell off the bus ends the waiting for all, and the driver does not say which one it was.
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookEveryMs));
      continue;
    }
    const auto& devices = management_->devices_;
    const auto found = std::ranges::find(devices, event.device);
    if (found == devices.end()) continue;
    const auto gpu = static_cast<std::uint32_t>(found - devices.begin());
    // An error of the memory wakes this thread, which asks the driver what has become of the GPU.
    if (event.type == nvml::kCriticalXid && KindOf(event.data) == XidOf::kGpu)
      Note(gpu, absl::StrCat("critical error Xid ", event.data));
  }
}

}  // namespace troupe::gpu
