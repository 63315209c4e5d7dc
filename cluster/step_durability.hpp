// STEP DURABILITY: whether the outputs of a workflow's step that stayed where they were computed are written to the manager's
// store as well. Pure; the workflow run asks it.
//
// A result that is only kept is lost with its worker, its node or the run's gateway, and is computed anew from the nearest
// results that are there: its step costs once more what it has cost. A result that is written costs its way to the disk
// each time, lost or not.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

// True: write them. `wish`: of the step. `took`: by its longest call, for the swap and the run; `bytes`: of the outputs that are
// kept. By cost, a disk that takes 100 MB/s, behind a sync of 5 ms, is the measure: what is computed faster than it is written
// is not written.
[[nodiscard]] bool WritesKept(proto::StepDurability wish, Duration took, std::uint64_t bytes);

// Whether the steps that read this one may begin before the log has its outputs. The log gets the ends of a run in order, so it
// never has a reader's without this one's; when the gateway dies in between, both are computed again. That costs
// less than a sync of the disk before each step of each run, unless the step takes long or the workflow wants its outputs written.
[[nodiscard]] bool MayGoOnUnwritten(proto::StepDurability wish, Duration took);

}  // namespace troupe::cluster
