// PROFILE VIEWS: profiles and experiments, as tables and lines for people. Pure.
#pragma once

#include <string>

#include "proto/admin.pb.h"
#include "shell/text/text.hpp"

namespace troupe::shell {

[[nodiscard]] Table ProfileTable(const proto::FunctionProfile& profile);
// "NVIDIA H100 PCIe, fp32, changed 2026-11-21 07:40:12; used on gpu-1/0", or why it is not used. `function`: whose
// profile it is; `gpus` (a reply to ListGpus): the GPUs that there are.
[[nodiscard]] std::string ProfileHead(const proto::FunctionProfile& profile,
                                      const proto::FunctionRecord& function, const proto::AdminReply& gpus);
// "batch 1: no gain above 24 % of the SMs", a line for each batch of which that is known.
[[nodiscard]] std::string SaturationLines(const proto::FunctionProfile& profile);
// "bisect on gpu-1/0: running, 4 trials, at most 10 to go, some 2m left"
[[nodiscard]] std::string ExperimentLine(const proto::ProfilingExperiment& experiment);

}  // namespace troupe::shell
