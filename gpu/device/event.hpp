// A point in the work of a device: the end of one operation.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "base/units.hpp"

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
};
using EventPtr = std::shared_ptr<Event>;

}  // namespace troupe::gpu
