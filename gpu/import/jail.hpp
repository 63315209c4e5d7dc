// JAIL: limits that a process puts on itself before it reads a hostile file. They end with the process.
#pragma once

#include "absl/status/status.h"
#include "base/units.hpp"

namespace troupe::gpu {

struct JailLimits {
  Bytes memory = GiB(4);                     // address space
  Duration time = std::chrono::seconds(60);  // processor time; at least a second
  Bytes file_size = GiB(16);                 // of each file written
  int open_files = 64;
};

// No core dumps, no new privileges, no new programs, no sockets. What goes beyond the limits: memory fails to
// be allocated, processor time and file size send SIGXCPU and SIGXFSZ. Call once, before any other thread
// exists.
[[nodiscard]] absl::Status EnterJail(const JailLimits& limits);

}  // namespace troupe::gpu
