// WORKFLOW PROGRESS: what one run does next, given what it has committed. Owned by the workflow-run actor,
// rebuilt from the run log after a restart: everything here follows from the spec and the committed steps.
//
//   a step:  waiting -> ready -> started -> committed;  started -> ready (restart, retry);  started -> failed
//   a run:   running -> succeeded | failed | cancelled
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/workflow_validator.hpp"
#include "proto/element_size.hpp"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

class WorkflowProgress {
 public:
  // `spec` has been validated.
  explicit WorkflowProgress(const proto::WorkflowSpec& spec);

  // From the run log, or after the commit of a step that was started. Committing twice changes nothing.
  void Commit(const std::string& step);
  // Steps whose inputs are all committed and that were not started, in the order of the spec; they count as
  // started.
  [[nodiscard]] std::vector<std::string> TakeReady();
  // The step's call failed for good: the run fails, and nothing else becomes ready. The first failure is
  // kept.
  void Fail(const std::string& step, const absl::Status& status);
  void Cancel();
  // The call is to be made again.
  void Retry(const std::string& step);
  // These steps, started or committed before, are to be run again, since results are lost; those among them that read
  // others wait for them.
  void Reopen(const std::set<std::string>& steps);

  [[nodiscard]] proto::RunState state() const;
  // OK while running and when succeeded.
  [[nodiscard]] const absl::Status& status() const { return status_; }
  [[nodiscard]] std::size_t running() const { return started_.size(); }
  [[nodiscard]] const std::set<std::string>& committed() const { return committed_; }
  [[nodiscard]] const proto::WorkflowStep& Step(const std::string& name) const;
  [[nodiscard]] const proto::WorkflowSpec& spec() const { return spec_; }

 private:
  proto::WorkflowSpec spec_;
  std::map<std::string, int> index_;
  std::map<std::string, std::set<std::string>> waits_for_;  // steps that are not committed yet
  std::map<std::string, std::vector<std::string>> feeds_;
  std::set<int> ready_;  // indexes, so that they come out in the order of the spec
  std::set<std::string> started_;
  std::set<std::string> committed_;
  bool cancelled_ = false;
  absl::Status status_;
};

// Of the committed steps whose results are lost, those that are to be run again so that the run can go on:
// what a step that is still to run reads, what the workflow gives, and what those read in their turn.
[[nodiscard]] std::set<std::string> StepsToRecompute(const proto::WorkflowSpec& spec,
                                                     const std::set<std::string>& committed,
                                                     const std::set<std::string>& lost);

// The outputs of a step that other steps read and the workflow does not give: they may stay where they are computed. None of
// a step that makes several calls, whose outputs are put together.
[[nodiscard]] std::vector<std::string> OutputsToKeep(const proto::WorkflowSpec& spec,
                                                     const std::string& step);

// Splitting a tensor along `dimension` into slices of size 1, each part one call of the step. For row-major
// bytes: part i is made of `outer` pieces of `piece` bytes, the first at i * piece, then every `stride`
// bytes.
struct FanOutPlan {
  std::uint64_t parts = 0;
  std::uint64_t outer = 0;
  std::uint64_t piece = 0;
  std::uint64_t stride = 0;
  std::vector<std::int64_t> part_shape;
};
// Whether a tensor may have so many bytes. InvalidArgument: its shape is not concrete, or says another
// number.
[[nodiscard]] absl::Status CheckBytes(const proto::TensorSpec& tensor, std::uint64_t bytes);
// InvalidArgument: no such dimension, BYTES, a size of 0, more parts than `max_parts`, sizes that overflow.
[[nodiscard]] absl::StatusOr<FanOutPlan> PlanFanOut(const proto::TensorSpec& tensor, std::uint32_t dimension,
                                                    std::uint64_t max_parts = 1024);
// The spec of the outputs of all parts put together along `dimension`. InvalidArgument when they do not
// agree.
[[nodiscard]] absl::StatusOr<proto::TensorSpec> ConcatenatedSpec(const std::vector<proto::TensorSpec>& parts,
                                                                 std::uint32_t dimension);
// The bytes of part `i` (`tensor` has as many as its spec says: CheckBytes), and parts put together again.
[[nodiscard]] std::string SlicePart(std::string_view tensor, const FanOutPlan& plan, std::uint64_t i);
[[nodiscard]] absl::StatusOr<std::string> Concatenate(const std::vector<proto::TensorSpec>& specs,
                                                      const std::vector<std::string_view>& parts,
                                                      std::uint32_t dimension);

}  // namespace troupe::cluster
