// The day of Azure's functions (2019) that experiments take their load from.
#pragma once

#include "absl/status/statusor.h"
#include "sim/experiments/experiment.hpp"
#include "sim/traces/trace_reader.hpp"

namespace troupe::sim {

// traces/azure2019/invitro_1350_inv.csv.gz: requests of each function in each minute, of `options.most_functions` functions and
// `options.minutes` minutes at most (0: all). NotFound when it is not there.
[[nodiscard]] absl::StatusOr<MinuteCounts> ReadAzureDay(const ExperimentOptions& options);

}  // namespace troupe::sim
