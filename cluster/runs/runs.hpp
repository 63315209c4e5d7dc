// RUNS: what runs of workflows commit to the run log, and how they end. A run's record changes once at a
// time: its end and its claims wait for each other (run_owners.hpp).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/events.hpp"
#include "cluster/records/after_commit.hpp"
#include "cluster/runs/run_change.hpp"

namespace troupe::cluster {

struct Parts;

class Runs {
 public:
  explicit Runs(Parts& parts) : parts_(parts) {}

  // An asker that owns the run is answered at once, with the run as it is. Another asker is answered when the run
  // has ended.
  void On(StartAsked& event);
  void On(const StepAsked& event);
  void On(const FinishAsked& event);
  // Stores the end of a run, unless it has ended: the first end counts, in the store as in memory. The asker is
  // answered when the end is settled, or could not be stored.
  void End(EndWish wish);
  // Commits the wish when no other change of the run is being stored (run_changes.hpp).
  void Store(const EndWish& wish);
  void On(const StartStored& stored, const absl::Status& status);
  void On(const StepStored& stored, const absl::Status& status);
  void On(const EndStored& stored, const absl::Status& status);
  // Answers those that waited for its end; or, with an error, for a run that never began.
  void Over(const std::string& run, const absl::Status& status);
  void Answer(Ask ask, proto::RunReply reply);
  [[nodiscard]] proto::RunReply Reply(const std::string& run) const;
  // A command of it is on its way to the store.
  [[nodiscard]] bool IsCommitting(const std::string& run) const { return committing_.contains(run); }

 private:
  [[nodiscard]] absl::Status Check(proto::StartRun& command) const;
  void Begin(Ask ask, proto::StartRun command);
  void TellRecomputed(const proto::CommitStep& command);
  // To an owner from before.
  void Refuse(Ask ask, const std::string& run, std::uint64_t claim, const absl::Status& status);
  // False: the same is being committed, and `ask` is answered with it.
  bool BeginCommit(const std::string& what, Ask ask);
  void EndCommit(const std::string& what, const std::string& run, const absl::Status& status);
  void DropAsks();
  void AnswerEnd(const EndWish& wish, const absl::Status& status);
  // The change has ended, and the next change of the run may begin.
  void Settle(const EndWish& wish, const absl::Status& status);

  Parts& parts_;
  // Commands of runs on their way to the store, and who waits for each.
  std::map<std::string, std::vector<Ask>> committing_;
};

}  // namespace troupe::cluster
