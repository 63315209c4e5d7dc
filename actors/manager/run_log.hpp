// RUN LOG: the runs of workflows as the store keeps them. It changes only by applying commands, and applying
// one twice changes nothing, so a command whose answer was lost may be sent again. Owned by the cluster
// manager.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/workflow.pb.h"

namespace troupe::actors {

[[nodiscard]] bool RunEnded(proto::RunState state);

class RunLog {
 public:
  explicit RunLog(std::size_t kept = 10000) : kept_(kept) {}

  // InvalidArgument for a key that may not name a run; AlreadyExists when the key names a run of another
  // workflow.
  [[nodiscard]] absl::Status ValidateStart(const proto::StartRun& command) const;
  // NotFound, or FailedPrecondition when the run has ended otherwise (cancelled).
  [[nodiscard]] absl::Status ValidateCommit(const std::string& run) const;

  void Apply(const proto::StartRun& command);
  void Apply(const proto::CommitStep& command);
  void Apply(const proto::FinishRun& command);

  [[nodiscard]] bool HasStep(const std::string& run, const std::string& step) const;
  // Null: unknown.
  [[nodiscard]] const proto::RunRecord* Find(const std::string& run) const;
  [[nodiscard]] std::vector<const proto::RunRecord*> List(const std::string& workflow) const;
  [[nodiscard]] std::size_t size() const { return runs_.size(); }
  // Ended runs beyond what is kept, oldest first; they are forgotten here, the caller removes them from the
  // store.
  [[nodiscard]] std::vector<proto::RunRecord> TakeSurplus();

 private:
  const std::size_t kept_;
  std::map<std::string, proto::RunRecord> runs_;
  std::deque<std::string> ended_;
};

}  // namespace troupe::actors
