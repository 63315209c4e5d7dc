#include "node/state/state_rooms.hpp"

#include "absl/strings/str_cat.h"

namespace troupe::node {

absl::Status StateRooms::Reserve(const StateNumber& function, Bytes bytes) {
  if (rooms_.contains(function)) return absl::OkStatus();
  if (bytes > capacity_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the state of '", function.text(), "' has ", FormatBytes(bytes), ", and this node keeps at most ",
        FormatBytes(capacity_), " of states (option state-memory)"));
  }
  if (bytes > capacity_ - reserved_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the state of '", function.text(), "' has ", FormatBytes(bytes), ", and of the ",
                     FormatBytes(capacity_), " that this node keeps (option state-memory) ",
                     FormatBytes(reserved_), " belong to other functions; remove one, or enlarge it"));
  }
  rooms_[function] = bytes;
  reserved_ += bytes;
  return absl::OkStatus();
}

void StateRooms::Free(const StateNumber& function) {
  const auto room = rooms_.find(function);
  if (room == rooms_.end()) return;
  reserved_ -= room->second;
  rooms_.erase(room);
}

}  // namespace troupe::node
