// How a worker ends, for the daemon that reaps it. A signal is a crash; everything else is one of these
// codes.
#pragma once

#include "gpu/device/cuda_plugin.hpp"

namespace troupe::gpu {

enum ExitCode : int {
  kExitClean = 0,         // asked to: a Shutdown order or SIGTERM
  kExitNotNow = 1,        // no memory, no descriptor: another try may do
  kExitUsage = 2,         // flags or files that make no sense; one line on stderr says which
  kExitSocketInUse = 3,   // another living worker listens at the socket
  kExitNoDevice = 4,      // there is no such device, or it cannot be opened
  kExitLeaseExpired = 5,  // no daemon came back within the lease
  kExitDeviceLost = 6,    // a sticky error: the device is of no use to this process any more
  // Of CUDA devices (gpu/device/cuda_plugin.hpp says what each means).
  kExitNoPlugin = 7,
  kExitNoDriver = 8,
  kExitDriverTooOld = 9,
  kExitWrongArchitecture = 10,
  kExitOutOfMemory = 11,  // at start
  kExitMemoryHeld = 12,   // by another process
  kExitKeptOff = 13,      // by the machine's settings: compute mode, MPS, MIG
};
// "lease expired"; empty for an unknown code.
[[nodiscard]] const char* ExitCodeName(int code);
// Of a device that could not be opened.
[[nodiscard]] int ExitCodeOf(CudaTrouble trouble);

}  // namespace troupe::gpu
