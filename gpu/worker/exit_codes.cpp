#include "gpu/worker/exit_codes.hpp"

namespace troupe::gpu {

const char* ExitCodeName(int code) {
  switch (code) {
    case kExitClean:
      return "clean";
    case kExitNotNow:
      return "something it needs is not to be had now";
    case kExitUsage:
      return "flags or files that make no sense";
    case kExitSocketInUse:
      return "socket in use by another worker";
    case kExitNoDevice:
      return "no such device";
    case kExitLeaseExpired:
      return "lease expired";
    case kExitDeviceLost:
      return "device lost";
    case kExitNoPlugin:
      return "no CUDA plug-in";
    case kExitNoDriver:
      return "no driver";
    case kExitDriverTooOld:
      return "driver too old";
    case kExitWrongArchitecture:
      return "wrong architecture";
    case kExitOutOfMemory:
      return "out of memory at start";
    case kExitMemoryHeld:
      return "another process holds the memory";
    case kExitKeptOff:
      return "kept off the GPU by the machine's settings";
    default:
      return "";
  }
}

int ExitCodeOf(CudaTrouble trouble) {
  switch (trouble) {
    case CudaTrouble::kNone:
      return kExitClean;
    case CudaTrouble::kUsage:
      return kExitUsage;
    case CudaTrouble::kNoPlugin:
      return kExitNoPlugin;
    case CudaTrouble::kNoDriver:
      return kExitNoDriver;
    case CudaTrouble::kDriverTooOld:
      return kExitDriverTooOld;
    case CudaTrouble::kNoDevice:
      return kExitNoDevice;
    case CudaTrouble::kWrongArchitecture:
      return kExitWrongArchitecture;
    case CudaTrouble::kOutOfMemory:
      return kExitOutOfMemory;
    case CudaTrouble::kBusy:
      return kExitMemoryHeld;
    case CudaTrouble::kTaken:
      return kExitKeptOff;
    case CudaTrouble::kLost:
      return kExitDeviceLost;
  }
  return kExitDeviceLost;
}

}  // namespace troupe::gpu
