// What passes between a daemon and a worker at adoption, and which daemon may adopt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/units.hpp"

namespace troupe::gpu {

// Descriptors in the worker's answer, in this order; the last only for a virtual device.
enum AdoptionDescriptor : std::size_t {
  kOrderRing = 0,
  kOutcomeRing,
  kOrderDoorbell,
  kOutcomeDoorbell,
  kOutputArena,
  kControlPage,
  kAdoptionDescriptors,  // what every worker sends
  kDeviceMemory = kAdoptionDescriptors,
};
// Descriptors in the daemon's hello; the last two only for a virtual device.
enum HelloDescriptor : std::size_t { kHostRegion = 0, kHelloMemory = 1, kHelloLinks = 2 };

// Operation codes of the records in the two rings.
inline constexpr std::uint16_t kOrderOp = 1;
inline constexpr std::uint16_t kOutcomeOp = 2;
// Memory of each ring: an order or outcome may have half of it.
inline constexpr Bytes kRingCapacity = MiB(4);

// Which daemon may adopt a worker. Pure.
//   waiting -(Admit)-> adopted -(Lost)-> waiting ...   a higher epoch is admitted in both states
class AdoptionGate {
 public:
  // Same daemon, same epoch: it may come back after it lost the link, not twice at a time, unless it comes to
  // say whom the worker serves (`assigns`).
  [[nodiscard]] absl::Status Admit(std::uint64_t epoch, bool assigns = false) const;
  void Adopted(std::uint64_t epoch);
  void Lost() { adopted_ = false; }
  [[nodiscard]] bool adopted() const { return adopted_; }

 private:
  bool adopted_ = false;
  std::uint64_t highest_ = 0;
};

// Which key a worker serves: none until a daemon names one, and that one until the worker's end. Pure.
class ServedKey {
 public:
  // FailedPrecondition when it serves another key, or has models or plans from before it had one (`used`).
  [[nodiscard]] absl::Status Admit(const std::string& key, bool used) const;
  // True when a hello with this key names one for the first time.
  [[nodiscard]] bool Assigns(const std::string& key) const { return key_.empty() && !key.empty(); }
  void Serve(const std::string& key) { key_ = key; }
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  std::string key_;
};

}  // namespace troupe::gpu
