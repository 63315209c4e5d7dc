// A daemon's session with its cluster: what its member actors need beside their records.
#pragma once

#include "absl/status/status.h"
#include "actors/daemon/common.hpp"
#include "actors/member/member.hpp"

namespace troupe::actors {

// Fills in where the manager is and how the log hears of the session. With `keep` the cluster's id is
// read from the file `cluster` of the data directory and kept there after the first join (a node, which has
// that cluster's models and states there); the error says why it could not be read. `common` outlives the
// member.
absl::Status TieToCluster(Common& common, bool keep, MemberOptions& options);

}  // namespace troupe::actors
