// What the worker and its plug-in compare before they share objects. Included by few sources, which are compiled again when any
// shared header changes.
#pragma once

#include "base/sanitizer.hpp"
#include "gpu/device/interface_digest.hpp"

namespace troupe::gpu {

#if TROUPE_SANITIZED
#define TROUPE_BUILD_KIND ", sanitized"
#else
#define TROUPE_BUILD_KIND ""
#endif
// Equal in two builds whose headers, and so their C++ interfaces, and compilers are equal.
inline constexpr char kCudaPluginVersion[] =
    "troupe-cuda " TROUPE_INTERFACE_DIGEST ", " __VERSION__ TROUPE_BUILD_KIND;
#undef TROUPE_BUILD_KIND

}  // namespace troupe::gpu
