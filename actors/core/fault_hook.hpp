// Faults that an operator injects into members (`troupe chaos run`): what actors need to know of them.
#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "proto/admin.pb.h"
#include "proto/fault_names.hpp"

namespace troupe::actors {

// Does to this process what KILL_DAEMON, STOP_DAEMON and CUT_TENSORS say, a moment after it has returned, so
// that the answer gets out. InvalidArgument for a fault that is not one of a process. Called in an actor;
// must not block. Empty: faults are not allowed here. Production form: ProcessFaults (actors/daemon).
using FaultHook = std::function<absl::Status(const proto::InjectFault&)>;

// Within one process: from now on faults are allowed here. Sent by daemons whose configuration says so only.
struct AllowFaults {
  FaultHook hook;
};

// FailedPrecondition that says what to do when `hook` is empty; `where` is a member.
[[nodiscard]] absl::Status CheckFaultsAllowed(const FaultHook& hook, const std::string& where);
[[nodiscard]] proto::AdminReply FaultAnswer(const absl::Status& status);

}  // namespace troupe::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::AllowFaults)
