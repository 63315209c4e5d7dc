// Makes one free range of scattered free memory, for weights that wait for it.
#pragma once

#include <memory>

#include "gpu/memory/device_memory.hpp"
#include "gpu/worker/model_table.hpp"

namespace troupe::gpu {

// Weights are evicted in the order of their use, not of their addresses: under load what is free is
// scattered, and the device never rests long enough for the Consolidator. Moves models that nothing uses out
// of the way, never more bytes than come in, and waits for the copies: within a device they take a small part
// of the time that the link needs. The main loop's thread.
class RoomMaker {
 public:
  // A device that does not copy within itself by then is broken: the watchdog of the worker sees it.
  static constexpr Duration kPatience = std::chrono::seconds(5);

  RoomMaker(DeviceMemory& memory, ModelTable& table);
  ~RoomMaker();
  // Whether weights of `size`, which were refused, are worth another try.
  [[nodiscard]] bool MakeRoom(Bytes size);

 private:
  DeviceMemory& memory_;
  ModelTable& table_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace troupe::gpu
