// The key of the run that a call of a step is, when the step calls a workflow: the same call of the same run has the same
// key at every gateway, so that a run that changes hands finds the runs inside it. It begins with '.', as no key of a
// client does.
#pragma once

#include <cstdint>
#include <string>

namespace troupe::cluster {

// `call`: of the step, from 0. `recomputed`: how often the step's committed result was lost.
[[nodiscard]] std::string InnerRunKey(const std::string& run, const std::string& step, std::uint64_t call,
                                      std::uint32_t recomputed);

}  // namespace troupe::cluster
