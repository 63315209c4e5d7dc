// How a run gets weights that are not all on the device when it begins: group by group while its model is on
// its way, or by layer, through a window of device memory, when its model is not on the device before or
// after.
#pragma once

#include "absl/status/status.h"
#include "gpu/device/device.hpp"
#include "gpu/worker/run.hpp"

namespace troupe::gpu {

// Whether a run whose model is not on the device can have its weights by layer. NotFound when its order does not say
// so, or its function has a state: the node brings the model. InvalidArgument when the order names no host copy.
[[nodiscard]] absl::Status CheckByLayer(const RunRequest& request);

// What each step of the launch waits for; also writes down when it is reached, if the order asks for that.
[[nodiscard]] StepGate GateOf(Run& run);

// Fills in when the first step could begin and the last group came, after the launch has ended.
void NoteGroups(Run& run, const Completion& completion);

// Stops the weights of a run by layer that is given up. True when the run has to wait until nothing reads its
// host copy, or writes its window, any more.
[[nodiscard]] bool StopLayers(Run& run, const absl::Status& why);

}  // namespace troupe::gpu
