#include "actors/core/fault_hook.hpp"

#include "absl/strings/str_cat.h"
#include "base/wire_status.hpp"

namespace troupe::actors {

absl::Status CheckFaultsAllowed(const FaultHook& hook, const std::string& where) {
  if (hook) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "'", where, "' does not allow faults: start it with --allow-faults (in a staging cluster; ",
      "never where it matters)"));
}

proto::AdminReply FaultAnswer(const absl::Status& status) {
  proto::AdminReply reply;
  SetStatus(status, reply);
  return reply;
}

}  // namespace troupe::actors
