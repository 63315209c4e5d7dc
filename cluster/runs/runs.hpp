// RUNS: what runs of workflows commit to the run log, and how they end. A run's record changes once at a
// time: its end and its claims wait for each other (run_owners.hpp).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/events.hpp"

namespace troupe::cluster {

struct Parts;

class Runs {
 public:
  explicit Runs(Parts& parts) : parts_(parts) {}

  // The asker is answered with a run that has not ended when it is the one that has it now, and else with its
  // end.
  void On(StartAsked& event);
  void On(const StepAsked& event);
  void On(const FinishAsked& event);
  // Stores the end of a run, unless it has ended: the first end counts, in the store as in memory. `done` is
  // called once, when the run's end is settled or could not be stored.
  void End(const proto::FinishRun& command, std::function<void(absl::Status)> done);
  // Answers those that waited for its end; or, with an error, for a run that never began.
  void Over(const std::string& run, const absl::Status& status);
  void Answer(Ask ask, proto::RunReply reply);
  [[nodiscard]] proto::RunReply Reply(const std::string& run) const;
  // A command of it is on its way to the store.
  [[nodiscard]] bool IsCommitting(const std::string& run) const { return committing_.contains(run); }

 private:
  [[nodiscard]] absl::Status Check(proto::StartRun& command) const;
  void Begin(Ask ask, proto::StartRun command);
  void Begun(const proto::StartRun& command, const absl::Status& status);
  void TellRecomputed(const proto::CommitStep& command);
  // To an owner from before.
  void Refuse(Ask ask, const std::string& run, std::uint64_t claim, const absl::Status& status);
  // False: the same is being committed, and `ask` is answered with it.
  bool BeginCommit(const std::string& what, Ask ask);
  void EndCommit(const std::string& what, const std::string& run, const absl::Status& status);
  void DropAsks();
  void StoreEnd(const proto::FinishRun& command, std::function<void(absl::Status)> done);

  Parts& parts_;
  // Commands of runs on their way to the store, and who waits for each.
  std::map<std::string, std::vector<Ask>> committing_;
};

}  // namespace troupe::cluster
