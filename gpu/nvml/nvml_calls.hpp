// The calls of the driver's management library (libnvidia-ml.so.1) that are made here, as its binary
// interface has them: it is opened where there is a driver, so no header of CUDA is needed and nothing is
// linked.
#pragma once

#include <cstdint>

namespace troupe::gpu::nvml {

using Return = int;
inline constexpr Return kSuccess = 0;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kInsufficientSize = 7;
inline constexpr Return kTimeout = 10;
inline constexpr Return kGpuIsLost = 15;

using Device = struct DeviceHandle*;
using EventSet = struct EventSetHandle*;

struct PciInfo {
  char legacy_id[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  char id[32];
};
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};
struct Event {
  Device device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpu_instance;
  unsigned compute_instance;
};
struct FieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency;
  int value_type;
  Return status;
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long as_long;
    unsigned long long as_long_long;
  } value;
};

// The nearest that two GPUs have in common on their ways to the host.
inline constexpr int kOneBoard = 0;
inline constexpr int kOneSwitch = 10;
inline constexpr int kSeveralSwitches = 20;
inline constexpr unsigned kMostNvLinks = 18;
inline constexpr int kLinkToGpu = 0;
inline constexpr int kLinkToSwitch = 2;
inline constexpr unsigned kNvLinkMegabytesPerSecond = 90;  // a field: of one link, each direction
inline constexpr unsigned kRecoveryAction = 230;           // a field: what the driver wants done with the GPU
inline constexpr unsigned kResetRequired = 1;
inline constexpr unsigned kRebootRequired = 2;
inline constexpr unsigned long long kDoubleBitError = 0x2;
inline constexpr unsigned long long kCriticalXid = 0x8;
inline constexpr int kUncorrected = 1;
inline constexpr int kSinceDriverStart = 0;

// name, and what it takes
#define TROUPE_NVML_CALLS(X)                                                                          \
  X(nvmlInit_v2, (void))                                                                              \
  X(nvmlShutdown, (void))                                                                             \
  X(nvmlDeviceGetCount_v2, (unsigned* count))                                                         \
  X(nvmlDeviceGetHandleByIndex_v2, (unsigned index, Device* device))                                  \
  X(nvmlDeviceGetHandleByUUID, (const char* id, Device* device))                                      \
  X(nvmlDeviceGetPciInfo_v3, (Device device, PciInfo * info))                                         \
  X(nvmlDeviceGetMemoryInfo, (Device device, Memory * memory))                                        \
  X(nvmlDeviceGetName, (Device device, char* name, unsigned length))                                  \
  X(nvmlDeviceGetTopologyCommonAncestor, (Device one, Device other, int* level))                      \
  X(nvmlDeviceGetNvLinkState, (Device device, unsigned link, int* active))                            \
  X(nvmlDeviceGetNvLinkRemoteDeviceType, (Device device, unsigned link, int* type))                   \
  X(nvmlDeviceGetNvLinkRemotePciInfo_v2, (Device device, unsigned link, PciInfo* info))               \
  X(nvmlDeviceGetFieldValues, (Device device, int count, FieldValue* values))                         \
  X(nvmlDeviceGetTotalEccErrors, (Device device, int type, int counter, unsigned long long*))         \
  X(nvmlDeviceGetRemappedRows,                                                                        \
    (Device device, unsigned* corrected, unsigned* uncorrected, unsigned* pending, unsigned* failed)) \
  X(nvmlDeviceGetMigMode, (Device device, unsigned* current, unsigned* pending))                      \
  X(nvmlDeviceGetComputeRunningProcesses_v3, (Device device, unsigned* count, Process* all))          \
  X(nvmlSystemGetProcessName, (unsigned pid, char* name, unsigned length))                            \
  X(nvmlEventSetCreate, (EventSet * set))                                                             \
  X(nvmlEventSetFree, (EventSet set))                                                                 \
  X(nvmlDeviceRegisterEvents, (Device device, unsigned long long types, EventSet set))                \
  X(nvmlEventSetWait_v2, (EventSet set, Event * event, unsigned milliseconds))

struct Calls {
#define TROUPE_NVML_MEMBER(name, takes) Return(*name) takes = nullptr;
  TROUPE_NVML_CALLS(TROUPE_NVML_MEMBER)
#undef TROUPE_NVML_MEMBER
  const char* (*nvmlErrorString)(Return) = nullptr;
};

}  // namespace troupe::gpu::nvml
