#include "actors/core/fault_hook.hpp"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/wire_status.hpp"

namespace troupe::actors {

std::string FaultName(proto::InjectFault::Kind kind) {
  auto name = absl::AsciiStrToLower(proto::InjectFault::Kind_Name(kind));
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool IsOfWorker(proto::InjectFault::Kind kind) {
  return kind == proto::InjectFault::KILL_WORKER || kind == proto::InjectFault::HANG_WORKER ||
         kind == proto::InjectFault::STALL_LINK;
}

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
