// PIN TABLE: which models of this device stay where they are while other GPUs of the node copy them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "gpu/device/device.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/model_table.hpp"
#include "gpu/worker/reply.hpp"
#include "gpu/worker/residency.hpp"
#include "transport/local_channel.hpp"

namespace troupe::gpu {

// A pinned model is held as a run holds it: it is neither evicted nor moved until the pin ends, by an Unpin
// order, with the daemon's session, or with this process. The worker of the destination asks for the memory
// by the pin's number, which no other pin has or had, and asks again when it has copied. A pin that has ended
// is unknown before its memory may be used otherwise, so the second answer holds for the whole copy. Called on
// the main loop's thread.
class PinTable {
 public:
  PinTable(Device& device, Residency& residency, const WorkerLimits& limits)
      : device_(device), residency_(residency), limits_(limits) {}
  ~PinTable() { UnpinAll(); }

  // NotFound when the model is not there, FailedPrecondition while it is on its way, or lies in more ranges
  // than a destination takes. `channel`: the session's, whose server hands out the memory.
  void Pin(const std::shared_ptr<transport::LocalChannel>& channel, const std::string& digest, Reply reply);
  // Nothing happens when there is no such pin (any more).
  void Unpin(std::uint64_t pin);
  void UnpinAll();
  [[nodiscard]] std::size_t size() const { return pins_.size(); }

 private:
  struct Held {
    std::string digest;
    ModelTable::Hold hold;
    std::shared_ptr<transport::LocalChannel> channel;
  };
  absl::StatusOr<proto::PinOutcome> Make(const std::shared_ptr<transport::LocalChannel>& channel,
                                         const std::string& digest);
  absl::Status Show(const DeviceRange& weights, transport::LocalChannel& channel, proto::PinnedMemory& shown);
  Device& device_;
  Residency& residency_;
  const WorkerLimits& limits_;
  std::map<std::uint64_t, Held> pins_;
};

}  // namespace troupe::gpu
