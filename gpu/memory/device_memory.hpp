// DEVICE MEMORY: the worker's quota of one device's memory, and who has which part of it.
//
//   made (the quota is taken from the device, once) -> Allocate ... Free -> destroyed (the quota goes back)
//
// Addresses: a range is contiguous and stays where it is until it is freed or moved (see consolidation.hpp).
//
// Owner: the worker's order desk; ends after everything that holds ranges, before the device. The main loop's
// thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/device/device.hpp"
#include "gpu/memory/memory_policy.hpp"
#include "transport/range_allocator.hpp"

namespace troupe::gpu {

// Who a range is for. Ranges of one model are kept together, so that its eviction frees whole partitions.
struct MemoryUser {
  enum class Kind { kWeights, kRun };
  Kind kind = Kind::kWeights;
  std::string_view digest;  // the model; for a run the one that it runs
};

struct MemoryOptions {
  std::string policy{kDefaultMemory};  // has been checked
  Bytes quota;                         // zero, or more than the device has: all of it
};

class DeviceMemory {
 public:
  DeviceMemory(Device& device, const MemoryOptions& options);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // ResourceExhausted when it does not fit: memory() says what there is. Aligned to 256 bytes; the size is
  // the one asked for. Zero bytes are a range too.
  [[nodiscard]] absl::StatusOr<DeviceRange> Allocate(const MemoryUser& user, Bytes size);
  // A range that was not allocated, or freed before, is a bug. No operation uses it any more.
  void Free(const DeviceRange& range);
  [[nodiscard]] MemoryUse memory() const;
  [[nodiscard]] Device& device() { return device_; }

 private:
  Device& device_;
  const DeviceRange quota_;
  transport::RangeAllocator ranges_;
};

}  // namespace troupe::gpu
