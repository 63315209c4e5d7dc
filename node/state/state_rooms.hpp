// STATE ROOMS: how much of the host's memory for images of states each function has taken, and each sequence that is in
// memory.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/units.hpp"
#include "node/names.hpp"

namespace troupe::node {

class StateRooms {
 public:
  explicit StateRooms(Bytes capacity) : capacity_(capacity) {}

  // Takes room for an image, once. FailedPrecondition: it can never have it; ResourceExhausted: not
  // beside the others.
  absl::Status Reserve(const StateNumber& function, Bytes bytes);
  void Free(const StateNumber& function);
  // For an image of this size.
  [[nodiscard]] bool Has(Bytes bytes) const { return bytes <= capacity_ - reserved_; }
  [[nodiscard]] Bytes reserved() const { return reserved_; }

 private:
  const Bytes capacity_;
  absl::flat_hash_map<StateNumber, Bytes> rooms_;
  Bytes reserved_;
};

}  // namespace troupe::node
