// PROFILE REMOVALS: profiles that an operator takes away. Members hear of it, and functions that left settings to them have
// the defaults, or what other profiles say.
#pragma once

#include "absl/status/status.h"
#include "cluster/events.hpp"
#include "cluster/records/mutation.hpp"

namespace troupe::cluster {

struct Parts;

class ProfileRemovals {
 public:
  explicit ProfileRemovals(Parts& parts) : parts_(parts) {}

  // The answer has the profiles that were removed, without rows. NotFound: there is none of the kind.
  void Remove(Ask ask, const proto::RemoveProfile& wish);

  // --- mutations (records/mutations.hpp) ---
  absl::Status Validate(DroppingProfiles& change) const;
  void Answer(const DroppingProfiles& change, const absl::Status& status);

 private:
  Parts& parts_;
};

}  // namespace troupe::cluster
