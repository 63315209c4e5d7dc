// VERSION CHANGES: which versions of a function get the requests that name none, as developers want it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "cluster/events.hpp"
#include "cluster/records/catalogue.hpp"
#include "cluster/records/mutation.hpp"

namespace troupe::cluster {

struct Parts;

class VersionChanges {
 public:
  explicit VersionChanges(Parts& parts) : parts_(parts) {}

  // The shares of all versions of the function change in one commit. The answer has all versions.
  void Split(Ask ask, const proto::SplitFunction& wish);

  // Why a version that was deployed gets no requests that name none; empty: it gets them.
  [[nodiscard]] static std::string WhyUnused(const proto::FunctionRecord& record, const Catalogue& catalogue);

  // --- mutations (records/mutations.hpp) ---
  absl::Status Validate(Splitting& change) const;
  void Answer(const Splitting& change, const absl::Status& status);

 private:
  Parts& parts_;
};

}  // namespace troupe::cluster
