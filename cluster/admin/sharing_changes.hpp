// SHARING CHANGES: how functions share their GPUs, as developers change it while the functions are served.
#pragma once

#include "absl/status/status.h"
#include "cluster/events.hpp"
#include "cluster/records/mutation.hpp"

namespace troupe::cluster {

struct Parts;

class SharingChanges {
 public:
  explicit SharingChanges(Parts& parts) : parts_(parts) {}

  // A wish without a version means the newest one. A wish that changes nothing stores nothing. The answer has the
  // version as it is then.
  void Update(Ask ask, const proto::UpdateFunction& wish);

  // --- mutations (records/mutations.hpp) ---
  absl::Status Validate(Updating& change) const;
  void Answer(const Updating& change, const absl::Status& status);

 private:
  Parts& parts_;
};

}  // namespace troupe::cluster
