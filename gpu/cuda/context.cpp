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

absl::StatusOr<std::unique_ptr<Context>> Context::Make(std::shared_ptr<const Driver> driver,
                                                       CUdevice device) {
  CUcontext context = nullptr;
  if (const CUresult result = driver->cuDevicePrimaryCtxRetain(&context, device); result != CUDA_SUCCESS) {
    return absl::Status(CodeOf(result), absl::StrCat("making the GPU's context: ", driver->Describe(result)));
  }
  return std::unique_ptr<Context>(new Context(std::move(driver), device, context));
}

Context::~Context() {
  Enter();
  for (const CUevent event : events_) (void)driver_->cuEventDestroy(event);
  (void)driver_->cuDevicePrimaryCtxRelease(device_);
}

int Context::Attribute(CUdevice_attribute attribute) const {
  int value = 0;
  return driver_->cuDeviceGetAttribute(&value, attribute, device_) == CUDA_SUCCESS ? value : 0;
}

void Context::Enter() const {
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

absl::StatusOr<EventHandle> Context::MakeEvent() {
  CUevent event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      event = events_.back();
      events_.pop_back();
    }
  }
  if (event == nullptr) {
    const absl::Status made =
        Check(driver_->cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC), "making an event");
    if (!made.ok()) return made;
  }
  return EventHandle(event, [this](CUevent used) { GiveBack(used); });
}

absl::StatusOr<EventHandle> Context::Record(CUstream stream) {
  TROUPE_ASSIGN_OR_RETURN(EventHandle event, MakeEvent());
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

void Context::GiveBack(CUevent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
}

}  // namespace troupe::gpu::cuda
