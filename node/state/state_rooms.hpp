// STATE ROOMS: how much of the host's memory for images of states each function has taken.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/units.hpp"
#include "node/names.hpp"

namespace troupe::node {

class StateRooms {
 public:
  explicit StateRooms(Bytes capacity) : capacity_(capacity) {}

  // Takes room for a function's image, once. FailedPrecondition: it can never have it; ResourceExhausted: not
  // beside the others.
  absl::Status Reserve(const StateNumber& function, Bytes bytes);
  void Free(const StateNumber& function);
  [[nodiscard]] Bytes reserved() const { return reserved_; }

 private:
  const Bytes capacity_;
  absl::flat_hash_map<StateNumber, Bytes> rooms_;
  Bytes reserved_;
};

}  // namespace troupe::node
