#include "gpu/cuda/driver.hpp"

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/cuda/shared_library.hpp"

namespace troupe::gpu::cuda {
absl::StatusOr<std::shared_ptr<const Driver>> Driver::Load(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::NotFoundError(absl::StrCat(library, " cannot be opened (", LastLoadError(), ")"));
  }
  auto driver = std::make_shared<Driver>();
#define TROUPE_CUDA_STRING(name) #name
#define TROUPE_CUDA_FIND(name) \
  TROUPE_RETURN_IF_ERROR(FindCall(handle, "the driver", TROUPE_CUDA_STRING(name), driver->name));
  TROUPE_CUDA_CALLS(TROUPE_CUDA_FIND)
#undef TROUPE_CUDA_FIND
#undef TROUPE_CUDA_STRING
  return driver;
}

std::string Driver::Describe(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr)
    return absl::StrCat("CUDA error ", static_cast<int>(result));
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return absl::StrCat(name, " (", text, ")");
}

}  // namespace troupe::gpu::cuda
