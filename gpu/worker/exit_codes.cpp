#include "gpu/worker/exit_codes.hpp"

namespace troupe::gpu {

const char* ExitCodeName(int code) {
  switch (code) {
    case kExitClean:
      return "clean";
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
    default:
      return "";
  }
}

}  // namespace troupe::gpu
