// The ids of the requests that a workflow run makes: the run's own, the step, and of a `for_each` the number of the call, with
// slashes between them. A run inside a run begins where its step's id ends: RUN/STEP/INNER-STEP.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/workflow.pb.h"

namespace troupe::cluster {

// `run`: the run's key, or the id that its client gave the request. `call`: of the step, from 0.
[[nodiscard]] std::string StepTrace(const std::string& run, const proto::WorkflowStep& step,
                                    std::uint64_t call);
// Whether a request with this id was made by the run, or by a run inside it.
[[nodiscard]] bool IsTracedBy(std::string_view id, std::string_view run);

}  // namespace troupe::cluster
