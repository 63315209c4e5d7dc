#include "cluster/runs/unwritten_runs.hpp"

#include <utility>

#include "cluster/parts.hpp"

namespace troupe::cluster {

void UnwrittenRuns::TakeBack(const std::set<std::string>& runs) {
  if (runs_.empty()) parts_.out.WakeAfter(Timer::kTakeBack, parts_.settings.take_back_retry);
  for (const auto& run : runs)
    if (parts_.catalogue.runs().Find(run) == nullptr && !parts_.runs.IsCommitting(run)) runs_.insert(run);
}

void UnwrittenRuns::OnTimer() {
  const auto runs = std::exchange(runs_, {});
  if (runs.empty()) return;
  parts_.commits.Add(NoStartChanges(runs), StartsTakenBack{runs});
}

void UnwrittenRuns::On(const StartsTakenBack& stored, const absl::Status& status) {
  if (!status.ok()) TakeBack(stored.runs);
}

}  // namespace troupe::cluster
