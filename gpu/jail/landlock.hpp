// LANDLOCK: which paths a process may still use. The C library has no wrappers, so these are raw system
// calls.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace troupe::gpu {

struct LandlockRules {
  std::vector<std::string> sockets;   // folders: list, make and remove sockets
  std::vector<std::string> readable;  // files, and folders with all below
};

// Beyond the rules nothing can be opened, made or removed; no process outside can be traced or read by way of
// /proc; where the kernel knows how, no TCP port, no abstract socket outside and no signal to another
// process. Needs no_new_privs. Per thread: call while there is one. A rule's path that is absent is skipped.
// Unavailable: the kernel has no Landlock.
[[nodiscard]] absl::Status RestrictPaths(const LandlockRules& rules);

}  // namespace troupe::gpu
