// SIGNALS: words that a device raises when its copies have ended, and that its launches wait for without the host.
#pragma once

#include <cstddef>
#include <memory>

namespace troupe::gpu {

//   lowered -> raised (by the copy that it was given to, or by the host)
// Made by a device (Device::MakeSignals), for one use. A launch may wait for a signal before the copy that raises
// it is put on its stream. Who waits this way hears of no failure: the maker releases signals whose copies do not
// come, and the event that they stand for tells the error. Any thread.
class Signals {
 public:
  virtual ~Signals() = default;
  [[nodiscard]] virtual std::size_t count() const = 0;
  // The host raises all of them: launches that wait go on, with data that did not come.
  virtual void Release() = 0;
};
using SignalsPtr = std::shared_ptr<Signals>;

// One of them.
struct Signal {
  SignalsPtr of;  // null: none
  std::size_t index = 0;
};

// The first `count` of them.
struct SignalRange {
  SignalsPtr of;  // null: none
  std::size_t count = 0;
};

}  // namespace troupe::gpu
