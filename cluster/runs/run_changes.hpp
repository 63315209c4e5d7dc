// RUN CHANGES: one change of a run's record at a time: an operator's cancellation, the run's own end and a claim
// for another gateway must not overwrite each other in the store. A second change waits until the first is
// stored, or could not be.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "cluster/runs/run_change.hpp"

namespace troupe::cluster {

struct Parts;

class RunChanges {
 public:
  explicit RunChanges(Parts& parts, std::size_t limit = 16) : parts_(parts), limit_(limit) {}

  // Begins the change now, or after the Ended of those before it. ResourceExhausted when `limit` of the same run
  // wait already: then it is not begun.
  absl::Status Add(RunChange change);
  // Once for each change that was begun: stored or not, the run's next change begins.
  void Ended(const std::string& run);

 private:
  void Begin(const RunChange& change);

  Parts& parts_;
  const std::size_t limit_;
  std::map<std::string, std::deque<RunChange>> changes_;  // by run; the first was begun
};

}  // namespace troupe::cluster
