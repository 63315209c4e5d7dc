// RUN LOG: the runs of workflows as the store keeps them. It changes only by applying commands, and applying
// one twice changes nothing, so a command whose answer was lost may be sent again. Owned by the cluster
// manager.
//
// A run has one owner at a time, named by its claim: how often it changed hands. From the moment at which a
// claim is on its way to the store, what an earlier one computed is refused. A claim of a run that failed for
// a passing reason makes it run again behind its committed steps.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "cluster/object_references.hpp"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

[[nodiscard]] bool RunEnded(proto::RunState state);
// It failed for a reason that may pass: a claim of another submission of its key reopens it. One that a
// release without FinishRun.code ended does not say why, and stays as it ended.
[[nodiscard]] bool MayReopen(const proto::RunRecord& run);
// The claim of an end that no gateway's actor asks for, but an operator.
inline constexpr std::uint64_t kAnyClaim = ~std::uint64_t{0};

class RunLog {
 public:
  // How many ended runs are kept, and how many bytes their inputs and results may have together: small ones lie in memory, large
  // ones on the disk. The newest run is kept whatever its size.
  struct Limits {
    std::size_t runs = 10000;
    Bytes bytes = MiB(256);
    Bytes blobs = GiB(4);
  };
  RunLog() = default;
  explicit RunLog(Limits limits) : limits_(limits) {}

  // InvalidArgument for a key that may not name a run; AlreadyExists when the key names a run of another
  // workflow, or one with other inputs, also one whose start is on its way.
  [[nodiscard]] absl::Status ValidateStart(const proto::StartRun& command) const;
  // NotFound, FailedPrecondition when the run has ended otherwise (cancelled), Aborted when it has changed
  // hands since `claim`.
  [[nodiscard]] absl::Status ValidateCommit(const std::string& run, std::uint64_t claim) const;

  // A start on its way to the store: until it is applied, or until StartFailed, its key is taken.
  void BeginStart(const proto::StartRun& command) { starting_[command.run()] = command; }
  void StartFailed(const std::string& run) { starting_.erase(run); }
  // The next claim of a run that is there, for `gateway`. It is on its way until it is applied, or until
  // ClaimFailed.
  [[nodiscard]] proto::ClaimRun BeginClaim(const std::string& run, const std::string& gateway);
  void ClaimFailed(const std::string& run) { claiming_.erase(run); }

  // What a claim makes of the record of a run that MayReopen.
  static void Reopen(proto::RunRecord& run);

  void Apply(const proto::StartRun& command);
  void Apply(const proto::ClaimRun& command);
  void Apply(const proto::CommitStep& command);
  void Apply(const proto::FinishRun& command);

  // Null: it was not committed.
  [[nodiscard]] const proto::CommitStep* FindStep(const std::string& run, const std::string& step) const;
  // Committed results that were lost and replaced, since this log was made.
  [[nodiscard]] std::uint64_t steps_recomputed() const { return steps_recomputed_; }
  // Null: unknown.
  [[nodiscard]] const proto::RunRecord* Find(const std::string& run) const;
  [[nodiscard]] std::vector<const proto::RunRecord*> List(const std::string& workflow) const;
  [[nodiscard]] std::size_t size() const { return runs_.size(); }
  // Runs that have not ended, by the gateway that has them.
  [[nodiscard]] std::map<std::string, std::vector<std::string>> Unfinished() const;
  // The objects that runs refer to, also those whose start is on its way.
  void AddObjects(Digests& digests) const;
  // Ended runs beyond what is kept, oldest first; they are forgotten here, the caller removes them from the
  // store.
  [[nodiscard]] std::vector<proto::RunRecord> TakeSurplus();

 private:
  // Null: its key is free.
  [[nodiscard]] const proto::StartRun* StartOf(const std::string& run) const;

  struct Ended {
    std::string run;
    Bytes size;
    Bytes blobs;  // on the disk
  };
  void AddEnded(Ended ended);
  // Takes it off the sums.
  void Subtract(const Ended& ended);
  void TakeBack(const std::string& run);

  Limits limits_;
  std::map<std::string, proto::RunRecord> runs_;
  std::deque<Ended> ended_;  // oldest first
  Bytes ended_bytes_{};      // of all of them
  Bytes ended_blobs_{};
  std::set<std::string> claiming_;
  std::map<std::string, proto::StartRun> starting_;
  std::uint64_t steps_recomputed_ = 0;
};

}  // namespace troupe::cluster
