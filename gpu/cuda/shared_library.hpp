// What is taken from NVIDIA's libraries by the names of their calls, so that nothing of ours is linked with them.
#pragma once

#include <dlfcn.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace troupe::gpu::cuda {

// Why the last dlopen of this thread failed.
inline std::string LastLoadError() {
  const char* const error = dlerror();
  return error == nullptr ? "no reason given" : error;
}

// FailedPrecondition with the call's name: `file` is of another version.
template <class Function>
absl::Status FindCall(void* library, const std::string& file, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(file, " has no ", name, ": it is of another version"));
}

}  // namespace troupe::gpu::cuda
