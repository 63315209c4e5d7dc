// STATE ROOMS: how much of the host's memory for images of states each function has taken.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "base/units.hpp"

namespace troupe::node {

class StateRooms {
 public:
  explicit StateRooms(Bytes capacity) : capacity_(capacity) {}

  // Takes room for a function's image, once. FailedPrecondition: it can never have it; ResourceExhausted: not
  // beside the others.
  absl::Status Reserve(const std::string& function, Bytes bytes);
  void Free(const std::string& function);
  [[nodiscard]] Bytes reserved() const { return reserved_; }

 private:
  const Bytes capacity_;
  std::map<std::string, Bytes> rooms_;
  Bytes reserved_;
};

}  // namespace troupe::node
