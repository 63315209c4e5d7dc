// The workflow run's class, private to its sources: workflow_run.cpp (how it begins, which gateway has it,
// its end), workflow_run_steps.cpp (its steps). Contract: actors/interfaces/workflow_run.hpp.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/gateway/run_session.hpp"
#include "actors/gateway/run_tensors.hpp"
#include "actors/gateway/run_values.hpp"
#include "actors/gateway/workflow_run.hpp"
#include "cluster/workflow_schedule.hpp"

namespace troupe::actors {

class WorkflowRun : public RunSelf::base {
 public:
  WorkflowRun(caf::actor_config& config, WorkflowRunOptions options, proto::WorkflowSpec spec,
              RouterActor router, ClusterManagerActor manager, transport::TensorChannel& channel);
  const char* name() const override { return "workflow_run"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  enum : std::uint32_t { kStoreEnd = 1, kTie = 2, kGoOn = 3, kRetry = 4 };
  // A step under way: its calls, and what they gave so far.
  struct StepCalls {
    std::vector<std::vector<RunValue>> outputs;
    std::size_t open = 0;
    Time until{};  // no call of it goes on beyond that
    absl::Status failure;
  };
  using Values = std::vector<RunValue>;
  // One call of a step: the whole step, or one slice of its fan-out.
  struct OneCall {
    proto::WorkflowStep step;
    std::size_t index = 0;
    Values inputs;
    std::uint32_t failures = 0;  // that passed, until now
    absl::Status last{};         // the last of them
  };
  using CallPtr = std::shared_ptr<OneCall>;
  // What the log has of a run, while it is read.
  struct Restored {
    int open = 0;
    std::set<std::string> committed;
    std::map<std::string, absl::Status> lost;  // of committed: steps whose results are gone
    std::pair<std::string, absl::Status> failed;
  };

  // --- beginning, and which gateway has the run (workflow_run.cpp) ---
  caf::typed_response_promise<proto::InferReply> Begin(const proto::InferRequest& request);
  void Submit();
  // With the record that the manager sent, and without a client.
  void GoOn();
  void ManagerIs(ClusterManagerActor manager);
  // The log knows this run. A run without another owner is ours from here on; a run that has ended is
  // answered so.
  void Registered(const absl::StatusOr<proto::RunRecord>& run);
  // Whether everything that the log has of the run was committed here.
  [[nodiscard]] bool Knows(const proto::RunRecord& run) const;
  // What is committed is not run again, unless its result is lost; the rest goes on with the inputs that the
  // log keeps.
  void Restore(const proto::RunRecord& run);
  void RestorePart(const std::string& step, const RunTensors::Stored& stored,
                   const std::shared_ptr<Restored>& restored);
  void GoOnWith(const Restored& restored);
  // Another gateway has it now: nothing more is begun, and its end is waited for.
  void Yield();
  void Forget();
  void AnswerAs(const proto::RunRecord& run);
  void Cancel(const proto::CancelInfer& cancel);
  void CancelCalls();
  // As RunTensors' own, but waits for a manager that is away.
  void Store(const Values& values, RunTensors::Done<RunTensors::Stored> done);
  void Load(const RunTensors::Stored& stored, RunTensors::Done<Values> done);
  [[nodiscard]] bool HasStep(const std::string& name) const;

  // --- steps (workflow_run_steps.cpp) ---
  void Advance();
  void RunStep(const proto::WorkflowStep& step);
  void Invoke(const CallPtr& call);
  void Collect(const CallPtr& call, const proto::InferReply& reply, std::uint64_t life);
  // An answer that is not good: the call is made again after a pause, or the step has failed. `advanced`: the
  // function's state may have gone on, so that the same call again would count twice.
  void CallFailed(const CallPtr& call, const absl::Status& status, Duration retry_after, bool advanced);
  void Retry(std::uint64_t pause);
  // Calls that wait to be made again are not made any more: of one step, or (empty) of all.
  void EndRetries(const std::string& step);
  void Called(const proto::WorkflowStep& step, const absl::Status& status);
  void Failed(const proto::WorkflowStep& step, const absl::Status& status);
  void CommitStep(const proto::WorkflowStep& step, const Values& outputs);
  void Committed(const proto::WorkflowStep& step, const Values& outputs, const absl::Status& status);

  // --- the end (workflow_run.cpp) ---
  void Finish();
  void StoreEnd();
  void EndStored(const proto::RunRecord& run);
  void EndNotStored(const absl::Status& status);
  void Answer(const absl::Status& status, const Values& outputs = {});
  void Reply(const absl::Status& status, const Values& outputs);

  const WorkflowRunOptions options_;
  cluster::WorkflowProgress progress_;
  RouterActor router_;
  transport::TensorChannel& channel_;
  PendingCalls calls_;
  RunTensors tensors_;
  RunSession session_;
  ClusterManagerActor manager_;  // until the run begins
  caf::typed_response_promise<proto::InferReply> promise_;
  std::vector<std::string> wanted_;
  Time expiry_{};
  proto::StartRun start_;
  Random random_;
  RunValues values_;
  bool has_inputs_ = false;  // in `values_`
  std::map<std::string, StepCalls> steps_;
  std::set<std::string> committed_;                  // by us, on their way too, or found in the log
  std::map<std::string, std::uint32_t> recomputed_;  // how often a committed result was lost, by step
  std::set<std::uint64_t> open_calls_;               // at the router
  std::uint64_t next_call_ = 1;
  std::map<std::uint64_t, CallPtr> pauses_;  // calls that failed and are to be made again
  std::uint64_t next_pause_ = 1;
  std::uint64_t claim_ = 0;
  bool over_ = false;       // it was answered, and ends without having begun
  bool started_ = false;    // the run is ours: a cancellation before that waits for it
  bool cancelled_ = false;  // its client went away, or an operator wants it
  std::uint64_t life_ = 0;  // of its ownership: what an earlier one began is dropped when it comes back
  std::shared_ptr<proto::FinishRun> end_;  // once the run has ended
  Values outputs_;                         // of a run that succeeded
  std::uint32_t end_tries_ = 0;
};

}  // namespace troupe::actors
