#include "gpu/cuda/fault.hpp"

#include <cstdlib>
#include <string_view>

#include "base/status.hpp"

namespace troupe::gpu::cuda {

bool HangIsIllegalAccess() {
  const char* const how = std::getenv("TROUPE_CUDA_HANG");
  return how != nullptr && std::string_view(how) == "illegal-access";
}

// The stream is not destroyed: its context is lost.
absl::Status AccessIllegally(Context& context, const Kernels& kernels) {
  constexpr std::uintptr_t kNowhere = 256;  // the first page is never mapped
  context.Enter();
  const Driver& driver = context.driver();
  CUstream stream = nullptr;
  TROUPE_RETURN_IF_ERROR(
      context.Check(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "making a stream"));
  TROUPE_ASSIGN_OR_RETURN(const EventHandle event, context.MakeEvent());
  UnaryArguments arguments;
  arguments.count = 1;
  arguments.in = reinterpret_cast<const float*>(kNowhere);
  arguments.out = reinterpret_cast<float*>(kNowhere);
  TROUPE_RETURN_IF_ERROR(kernels.Launch(stream, arguments));
  TROUPE_RETURN_IF_ERROR(context.Check(driver.cuEventRecord(event.get(), stream), "an access on purpose"));
  return context.CheckWork(driver.cuEventSynchronize(event.get()), "an illegal access on purpose");
}

}  // namespace troupe::gpu::cuda
