// HOST PINS: memory of the host that the GPU copies from and to without the driver's help.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "gpu/cuda/context.hpp"

namespace troupe::gpu::cuda {

// Thread-safe. A registration is of the pages that are there when it is made: before they are exchanged for others
// they are unregistered.
class HostPins {
 public:
  explicit HostPins(Context& context) : context_(context) {}

  // How memory is registered that is mapped for reading alone.
  enum class Way { kAsItIs, kReadOnly, kOpened, kNone };
  // Tried on a small file that is mapped as a worker maps the host region. `why`: of kNone, the driver's word.
  static Way WayOfRegions(Context& context, std::string& why);

  // Memory that is mapped for reading alone is made writable for the time of the call, since most drivers
  // register no other; where the system does not allow that, the GPU has to be one that can read such memory.
  // The caller may register the same memory several times, and unregisters it as often.
  absl::Status Register(std::span<const std::byte> memory);
  void Unregister(std::span<const std::byte> memory);

  // Whether a copy of it returns before it is done.
  [[nodiscard]] bool Has(std::span<const std::byte> host) const;
  // The driver refuses a copy that reaches from one registration into another, or out of it. Calls `copy` for
  // the parts of `host` that can be copied with one call each, one after the other, until one fails. No
  // registration begins or ends meanwhile.
  using Copy = std::function<absl::Status(std::size_t offset, std::size_t length)>;
  absl::Status ForEachPart(std::span<const std::byte> host, const Copy& copy) const;

 private:
  CUresult Pin(std::span<const std::byte> memory, Way& way) const;

  struct Pinned {
    std::size_t size = 0;
    std::size_t times = 0;  // zero: the driver is about to register it, or to let go of it
  };
  Context& context_;
  mutable std::mutex protecting_;  // held while memory is writable for a moment
  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, Pinned> ranges_;  // guarded by mutex_
};

// "by opening their mapping for the time of the call"
[[nodiscard]] const char* Describe(HostPins::Way way);

}  // namespace troupe::gpu::cuda
