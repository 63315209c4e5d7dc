// FILTER: the lists of system calls, by libseccomp.
#pragma once

#include "absl/status/status.h"

namespace troupe::gpu {

enum class FilterKind {
  kImport,  // an allow-list: compute, and read and write what is open
  kWorker,  // an allow-list: that, and threads, shared memory and Unix sockets; ENOSYS for all but escapes
  kDriver,  // a deny-list, for processes with a GPU driver
};

// Holds for every thread of the process, and for ever. What is not allowed ends an import; a worker or a
// driver is refused it, and a worker ends by SIGSYS at what only an intruder calls (forbidden_calls.hpp).
// Unavailable: the kernel has no filters, or a container forbids them.
[[nodiscard]] absl::Status InstallFilter(FilterKind kind);

}  // namespace troupe::gpu
