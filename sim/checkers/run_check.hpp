// What must hold of runs of a workflow, as clients and the run log see them: a run whose client has its
// answer has succeeded, with that answer and every step; a run that a client was told has failed did; a run
// whose cancellation was acknowledged is cancelled; a key is one run, whichever client asks with it and
// where; each run ends; a step was skipped if its client wanted it so, and else was not.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "proto/workflow.pb.h"
#include "sim/checkers/request_ledger.hpp"

namespace troupe::sim {

// Runs of other workflows, which models in stages have, must end as well, and that is all that is said of them.
struct RunRules {
  std::string workflow{};
  std::size_t steps = 0;      // of each run that succeeded, those that were skipped among them
  std::string conditional{};  // the step that may be skipped; "": none
  std::function<bool(const std::string& question)> goes{};  // whether it runs
  std::set<std::string> cancelled{};                        // runs whose cancellation was acknowledged
  std::set<std::string> unknown{};  // runs that lie on the disk, and their manager does not know that
};
// What its client asked: the input "x"; a condition may stand beside it.
[[nodiscard]] std::string QuestionOf(const proto::RunRecord& run);
// A line for each rule that was broken. `log`: all runs there were.
[[nodiscard]] std::vector<std::string> CheckRuns(const RequestLedger& ledger,
                                                 const std::vector<proto::RunRecord>& log,
                                                 const RunRules& rules);

}  // namespace troupe::sim
