// WORKFLOW PROGRESS: what one run does next, given how its steps have ended. Owned by the workflow-run actor,
// rebuilt from the run log after a restart: everything here follows from the spec and from what the log keeps.
//
//   a step:  waiting -> decided: to run -> committed | failed (it has an on_error)
//                       decided: to skip -> skipped
//            each end is durable before what waits for the step is decided, or on its way to the log (step_durability.hpp)
//   a run:   running -> succeeded | failed | cancelled
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/workflow_validator.hpp"
#include "cluster/workflows/deadlines.hpp"
#include "cluster/workflows/for_each_limits.hpp"
#include "cluster/workflows/step_ends.hpp"
#include "proto/element_size.hpp"
#include "proto/workflow.pb.h"

namespace troupe::cluster {

struct StepDecision {
  enum class Kind { kWait, kRun, kSkip, kFail };
  Kind kind = Kind::kWait;
  std::string step{};
  absl::Status status{};  // kSkip: its message says why; kFail: the error
};

class WorkflowProgress {
 public:
  // Whether a value of the run, a workflow input or a "step.output", is not zero.
  using Truth = std::function<absl::StatusOr<bool>(const std::string& value)>;

  // `spec` has been validated.
  explicit WorkflowProgress(const proto::WorkflowSpec& spec);

  // The end of a step, from the run log, or once it is durable. Only the first end of a step counts. The run fails with
  // the error of a step that failed when it is known that nothing stands in for it.
  void End(const std::string& step, StepOutcome outcome);
  // The outputs of a committed step are lost: it runs whatever its condition says now, since it ran before.
  void RunAgain(const std::string& step);
  // What is decided by now of steps that were not decided before, in the order of the spec. What is decided counts as
  // started.
  [[nodiscard]] std::vector<StepDecision> Decide(const Truth& truth);
  // Steps that were started, or have ended, are to run again, since results are lost: as RunAgain.
  void Reopen(const std::set<std::string>& steps);
  // The step failed, and has no on_error: the run fails, and nothing more is decided. The first failure is kept.
  void Fail(const std::string& step, const absl::Status& status);
  void Cancel();

  [[nodiscard]] proto::RunState state() const;
  // OK while running and when succeeded.
  [[nodiscard]] const absl::Status& status() const { return status_; }
  [[nodiscard]] std::size_t running() const { return started_.size(); }
  [[nodiscard]] const proto::WorkflowStep& Step(const std::string& name) const;
  // A step that was decided to run, each input bound to the value that counts.
  [[nodiscard]] proto::WorkflowStep Bound(const std::string& name) const;
  // Until when the step may take that begins now.
  [[nodiscard]] Time Deadline(const std::string& step, Time now, Time expiry) const {
    return deadlines_.Of(Step(step), now, expiry);
  }
  [[nodiscard]] const StepEnds& ends() const { return ends_; }
  // The steps whose outputs are durable.
  [[nodiscard]] std::set<std::string> Committed() const;
  [[nodiscard]] const proto::WorkflowSpec& spec() const { return *spec_; }

 private:
  void Settle();
  [[nodiscard]] int IndexOf(const std::string& step) const;
  [[nodiscard]] StepDecision Judge(const proto::WorkflowStep& step, const Truth& truth) const;
  void LookAtReadersOf(const std::string& step);

  std::shared_ptr<const proto::WorkflowSpec> spec_;  // `ends_` points into it
  StepEnds ends_;
  StepDeadlines deadlines_;
  std::map<std::string, int> index_;
  std::map<std::string, std::set<std::string>> feeds_;  // steps that read a step, or stand in for it
  std::set<int> look_;  // steps to be judged; indexes, so that they come out in the order of the spec
  std::set<std::string> started_;
  std::set<std::string> decided_;  // to run, before this progress was made
  std::set<std::string>
      standing_in_;  // steps that failed, and what stands in for them is not known to be there
  bool cancelled_ = false;
  absl::Status status_;
};

// Of the committed steps whose results are lost, those that are to be run again so that the run can go on:
// what a step that is still to run reads or may read, what the workflow gives, and what those read in their turn.
[[nodiscard]] std::set<std::string> StepsToRecompute(const proto::WorkflowSpec& spec, const StepEnds& ends,
                                                     const std::set<std::string>& lost);

// The steps whose ends were decided by the end of a step that has none in `ends`, or of one of them: a gateway went on behind a
// step while the log wrote its end (MayGoOnUnwritten), the log then refused that one, and took a later one. They are decided anew.
[[nodiscard]] std::set<std::string> StepsWithoutGround(const proto::WorkflowSpec& spec, const StepEnds& ends);

// The outputs of a step that other steps' calls of functions read and nothing else does: they may stay where they are computed.
// None of a step that makes several calls, whose outputs are put together, or that calls a workflow.
[[nodiscard]] std::vector<std::string> OutputsToKeep(const proto::WorkflowSpec& spec,
                                                     const std::string& step);
// FailedPrecondition: the call of the step's function did not give an output that the workflow reads. `called`: the version that
// answered; `given`: the outputs' names. Of a step that calls a workflow outputs may be absent.
[[nodiscard]] absl::Status CheckGiven(const proto::WorkflowSpec& spec, const proto::WorkflowStep& step,
                                      const proto::FunctionKey& called, const std::set<std::string>& given);
// The steps whose outputs may stand in for those of a step that fails.
[[nodiscard]] std::set<std::string> StepsThatStandIn(const proto::WorkflowSpec& spec);

// Splitting a tensor along `dimension` into slices of size 1, each part one call of the step. For row-major
// bytes: part i is made of `outer` pieces of `piece` bytes, the first at i * piece, then every `stride`
// bytes.
struct ForEachPlan {
  std::uint64_t parts = 0;
  std::uint64_t outer = 0;
  std::uint64_t piece = 0;
  std::uint64_t stride = 0;
  std::vector<std::int64_t> part_shape;
};
// Whether a tensor may have so many bytes. InvalidArgument: its shape is not concrete, or says another
// number.
[[nodiscard]] absl::Status CheckBytes(const proto::TensorSpec& tensor, std::uint64_t bytes);
// A size of 0 has no parts. InvalidArgument: no such dimension, BYTES, more parts than `most`, sizes that overflow.
[[nodiscard]] absl::StatusOr<ForEachPlan> PlanForEach(const proto::TensorSpec& tensor,
                                                      std::uint32_t dimension,
                                                      std::uint64_t most = ForEachLimits::kMost);
// What a step gives that makes no call, because there is no element: each output as the function declared it, with size
// 0 along the dimension, and 0 wherever the function left a size open. FailedPrecondition: the workflow was
// submitted before declarations were kept.
[[nodiscard]] absl::StatusOr<std::vector<proto::TensorSpec>> OutputsOfNoCall(const proto::WorkflowStep& step);
// The spec of the outputs of all parts put together along `dimension`. InvalidArgument when they do not
// agree.
[[nodiscard]] absl::StatusOr<proto::TensorSpec> ConcatenatedSpec(const std::vector<proto::TensorSpec>& parts,
                                                                 std::uint32_t dimension);
// The bytes of part `i` (`tensor` has as many as its spec says: CheckBytes), and parts put together again.
[[nodiscard]] std::string SlicePart(std::string_view tensor, const ForEachPlan& plan, std::uint64_t i);
[[nodiscard]] absl::StatusOr<std::string> Concatenate(const std::vector<proto::TensorSpec>& specs,
                                                      const std::vector<std::string_view>& parts,
                                                      std::uint32_t dimension);

}  // namespace troupe::cluster
