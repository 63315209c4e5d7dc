// PIN TABLE: which models and tensors of this device stay where they are while other GPUs of the node copy them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "gpu/device/device.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/model_table.hpp"
#include "gpu/worker/reply.hpp"
#include "gpu/worker/residency.hpp"
#include "gpu/worker/tensor_store.hpp"
#include "transport/local_channel.hpp"

namespace troupe::gpu {

// What is pinned is held as a run holds it: it is neither evicted nor moved until the pin ends, by an Unpin
// order, with the daemon's session, or with this process. The worker of the destination asks for the memory
// by the pin's number, which no other pin has or had, and asks again when it has copied. A pin that has ended
// is unknown before its memory may be used otherwise, so the second answer holds for the whole copy. Called on
// the main loop's thread.
class PinTable {
 public:
  using ChannelPtr = std::shared_ptr<transport::LocalChannel>;
  PinTable(Device& device, Residency& residency, TensorStore& tensors, const WorkerLimits& limits)
      : device_(device), residency_(residency), tensors_(tensors), limits_(limits) {}
  ~PinTable() { UnpinAll(); }

  // NotFound when the model or tensor is not there; FailedPrecondition while the model is on its way, when the
  // tensor has left the device, or when it lies in more ranges than a destination takes. `channel`: the
  // session's, whose server hands out the memory.
  void Pin(const ChannelPtr& channel, const proto::PinOrder& order, Reply reply);
  // Nothing happens when there is no such pin (any more).
  void Unpin(std::uint64_t pin);
  void UnpinAll();
  [[nodiscard]] std::size_t size() const { return pins_.size(); }

 private:
  struct Held {
    DeviceRange range;
    std::function<void()> release;
    ChannelPtr channel;
  };
  absl::StatusOr<Held> HoldModel(const std::string& digest);
  absl::StatusOr<Held> HoldTensor(const proto::KeptTensor& tensor);
  absl::Status Show(const DeviceRange& held, transport::LocalChannel& channel, proto::PinnedMemory& shown);
  Device& device_;
  Residency& residency_;
  TensorStore& tensors_;
  const WorkerLimits& limits_;
  std::map<std::uint64_t, Held> pins_;
};

}  // namespace troupe::gpu
