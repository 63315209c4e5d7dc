// Runs that read and advance a state of their function: they take turns.
#pragma once

#include "absl/status/status.h"
#include "gpu/worker/run.hpp"
#include "gpu/worker/state_table.hpp"

namespace troupe::gpu {

// The run gets in the line of its function's state, when its order names one. NotFound when the state is not
// on this device; InvalidArgument when the order and the state name different tensors.
[[nodiscard]] absl::Status JoinState(StateTable& states, RunId id, Run& run);
void LeaveState(StateTable& states, RunId id, Run& run);
[[nodiscard]] inline bool HasTurn(RunId id, const Run& run) {
  return run.state == nullptr || StateTable::MayBegin(*run.state, id);
}

}  // namespace troupe::gpu
