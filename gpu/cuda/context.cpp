#include "gpu/cuda/context.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::cuda {
namespace {

// Waking a thread costs this much: what ends sooner is waited for without sleep.
constexpr Duration kSpin = std::chrono::microseconds(20);

// Errors after which every further call on the context fails: only a new process gets on.
bool Sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

absl::StatusCode CodeOf(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return absl::StatusCode::kResourceExhausted;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
      return absl::StatusCode::kInvalidArgument;
    case CUDA_ERROR_NOT_SUPPORTED:
      return absl::StatusCode::kUnimplemented;
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_NO_DEVICE:
      return absl::StatusCode::kNotFound;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

std::unique_ptr<Context> Context::Make(std::shared_ptr<const Driver> driver, CUdevice device,
                                       CUresult& result) {
  CUcontext context = nullptr;
  result = driver->cuDevicePrimaryCtxRetain(&context, device);
  if (result != CUDA_SUCCESS) return nullptr;
  return std::unique_ptr<Context>(new Context(std::move(driver), device, context));
}

Context::~Context() {
  {
    const std::lock_guard lock(mutex_);
    later_.stopping = true;
  }
  later_.changed.notify_all();
  if (later_.thread.joinable()) later_.thread.join();
  Enter();
  for (const auto& kind : events_) {
    for (const CUevent event : kind) (void)driver_->cuEventDestroy(event);
  }
  (void)driver_->cuDevicePrimaryCtxRelease(device_);
}

int Context::Attribute(CUdevice_attribute attribute) const {
  int value = 0;
  return driver_->cuDeviceGetAttribute(&value, attribute, device_) == CUDA_SUCCESS ? value : 0;
}

// A context that ended may have left its address, and its handle, to this one: hence the number.
void Context::Enter() const {
  static thread_local std::uint64_t current = 0;
  if (current == number_) return;
  current = number_;
  Return();
}

void Context::Return() const {
  (void)driver_->cuCtxSetCurrent(context_);
}

absl::Status Context::Check(CUresult result, std::string_view doing) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  if (Sticky(result)) {
    Lose(result, doing);
    return health();
  }
  return absl::Status(CodeOf(result), absl::StrCat(std::string(doing), ": ", driver_->Describe(result)));
}

absl::Status Context::CheckWork(CUresult result, std::string_view doing) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  Lose(result, doing);
  return health();
}

absl::Status Context::health() const {
  const std::lock_guard lock(mutex_);
  return health_;
}

// The first reason explains the others.
void Context::Lose(CUresult result, std::string_view doing) const {
  const std::lock_guard lock(mutex_);
  if (health_.ok())
    health_ = absl::UnavailableError(absl::StrCat(std::string(doing), ": ", driver_->Describe(result)));
}

absl::StatusOr<EventHandle> Context::MakeEvent(EventKind kind) {
  CUevent event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::vector<CUevent>& free = events_[static_cast<std::size_t>(kind)];
    if (!free.empty()) {
      event = free.back();
      free.pop_back();
    }
  }
  if (event == nullptr) {
    const unsigned flags =
        CU_EVENT_BLOCKING_SYNC | (kind == EventKind::kTimed ? 0U : unsigned{CU_EVENT_DISABLE_TIMING});
    const absl::Status made = Check(driver_->cuEventCreate(&event, flags), "making an event");
    if (!made.ok()) return made;
  }
  return EventHandle(event, [this, kind](CUevent used) { GiveBack(used, kind); });
}

absl::StatusOr<EventHandle> Context::Record(CUstream stream, EventKind kind) {
  TROUPE_ASSIGN_OR_RETURN(EventHandle event, MakeEvent(kind));
  TROUPE_RETURN_IF_ERROR(Check(driver_->cuEventRecord(event.get(), stream), "recording an event"));
  return event;
}

absl::Status Context::Await(const EventHandle& event) const {
  const Time patience = transport::SteadyNow() + kSpin;
  CUresult result = driver_->cuEventQuery(event.get());
  while (result == CUDA_ERROR_NOT_READY && transport::SteadyNow() < patience)
    result = driver_->cuEventQuery(event.get());
  if (result == CUDA_ERROR_NOT_READY) result = driver_->cuEventSynchronize(event.get());
  return CheckWork(result, "the GPU's work");
}

Duration Context::Between(const EventHandle& begin, const EventHandle& end) const {
  float milliseconds = 0;
  if (driver_->cuEventElapsedTime(&milliseconds, begin.get(), end.get()) != CUDA_SUCCESS) return Duration(1);
  return std::max(FromSeconds(static_cast<double>(milliseconds) / 1e3), Duration(1));
}

void Context::GiveBack(CUevent event, EventKind kind) {
  const std::lock_guard lock(mutex_);
  events_[static_cast<std::size_t>(kind)].push_back(event);
}

void Context::Later(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  later_.calls.push_back(std::move(call));
  if (!later_.thread.joinable()) later_.thread = std::thread([this] { ServeLater(); });
  later_.changed.notify_all();
}

void Context::ServeLater() {
  Enter();
  std::unique_lock lock(mutex_);
  for (;;) {
    later_.changed.wait(lock, [this] { return later_.stopping || !later_.calls.empty(); });
    if (later_.calls.empty()) return;
    const std::function<void()>& call = later_.calls.front();
    lock.unlock();
    call();
    lock.lock();
    later_.calls.pop_front();
    later_.changed.notify_all();
  }
}

void Context::AwaitLater() {
  std::unique_lock lock(mutex_);
  if (std::this_thread::get_id() == later_.thread.get_id()) return;
  later_.changed.wait(lock, [this] { return later_.calls.empty(); });
}

}  // namespace troupe::gpu::cuda
