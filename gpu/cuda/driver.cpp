#include "gpu/cuda/driver.hpp"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu::cuda {
namespace {

template <class Function>
absl::Status Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the driver has no ", name));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Driver>> Driver::Load(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    return absl::NotFoundError(
        absl::StrCat(library, " cannot be opened (", error == nullptr ? "no reason given" : error, ")"));
  }
  auto driver = std::make_shared<Driver>();
#define TROUPE_CUDA_STRING(name) #name
#define TROUPE_CUDA_FIND(name) TROUPE_RETURN_IF_ERROR(Find(handle, TROUPE_CUDA_STRING(name), driver->name));
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
