// UNWRITTEN RUNS: a start that failed may lie on the disk all the same, and its submitter was told that it did
// not begin: it is not to begin by itself when a manager reads the store again. So it is deleted there, until
// that is acknowledged. Meanwhile the same key may be submitted anew, which writes over it.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "cluster/records/after_commit.hpp"

namespace troupe::cluster {

struct Parts;

class UnwrittenRuns {
 public:
  explicit UnwrittenRuns(Parts& parts) : parts_(parts) {}

  void OnTimer();
  void On(const StartsTakenBack& stored, const absl::Status& status);
  void TakeBack(const std::set<std::string>& runs);
  void WrittenAnew(const std::string& run) { runs_.erase(run); }

 private:
  Parts& parts_;
  std::set<std::string> runs_;
};

}  // namespace troupe::cluster
