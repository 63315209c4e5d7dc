// A point in the work of a device: the end of one operation.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "gpu/device/signals.hpp"

namespace troupe::gpu {

//   pending -> done (with the operation's status; once)
// Any thread. Streams wait for events without a thread of the caller; Wait is for tests and shutdown.
class Event {
 public:
  virtual ~Event() = default;
  [[nodiscard]] virtual bool done() const = 0;
  // The operation's status; a pending event is a bug.
  [[nodiscard]] virtual absl::Status status() const = 0;
  // Blocks; DeadlineExceeded when it is still pending after `timeout`, else the operation's status.
  [[nodiscard]] virtual absl::Status Wait(Duration timeout) const = 0;
  // What a launch can wait for on the device itself instead: all of it is raised before the event is done, or soon
  // after. The launch's result counts only if the event's status is OK. None: only the host knows the event.
  [[nodiscard]] virtual SignalRange signals() const { return {}; }
};
using EventPtr = std::shared_ptr<Event>;

}  // namespace troupe::gpu
