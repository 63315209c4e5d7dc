// PROFILE CHECKS: what a profile and an experiment may be of a function. Pure.
#pragma once

#include "absl/status/status.h"
#include "proto/function.pb.h"
#include "proto/function_profile.pb.h"

namespace troupe::cluster {

// FailedPrecondition: its model cannot run on such a batch, or it keeps state, which trials would advance.
[[nodiscard]] absl::Status CheckMayBeProfiled(const proto::FunctionRecord& function,
                                              const proto::ProfilingGrid& grid);
// InvalidArgument or FailedPrecondition names what a profile from outside has that cannot be true of this function:
// another digest or precision, a point twice, a figure that is not a number.
[[nodiscard]] absl::Status CheckProfile(const proto::FunctionProfile& profile,
                                        const proto::FunctionRecord& function);

}  // namespace troupe::cluster
