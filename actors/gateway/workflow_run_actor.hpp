// The workflow run's class, private to its sources: workflow_run.cpp (how it begins, which gateway has it,
// its end), workflow_run_steps.cpp (its steps). Contract: actors/interfaces/workflow_run.hpp.
#pragma once

#include <caf/typed_event_based_actor.hpp>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/gateway/run_session.hpp"
#include "actors/gateway/run_tensors.hpp"
#include "actors/gateway/run_values.hpp"
#include "actors/gateway/step_calls.hpp"
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
  using Values = std::vector<RunValue>;
  // What the log has of a run, while it is read.
  struct Restored {
    int open = 0;
    std::map<std::string, cluster::StepOutcome> ends;  // of steps
    std::map<std::string, absl::Status> lost;          // committed steps whose results are gone
    std::pair<std::string, absl::Status> failed;
  };

  // Who asked for the run, and until when.
  struct Client {
    caf::typed_response_promise<proto::InferReply> promise;
    std::vector<std::string> wanted;  // outputs
    std::string version{};            // of an earlier run whose outcome the client gets; "": the run's own
    Time expiry{};
  };
  struct Ownership {
    std::uint64_t claim = 0;
    bool logged = false;     // the log has the run's start
    bool started = false;    // the run is ours: a cancellation before that waits for it
    std::uint64_t life = 0;  // what an earlier one began is dropped when it comes back
  };
  // What the run has come to so far.
  struct Results {
    RunValues values;
    std::map<std::string, RunValues::Numbers> read;  // what each step has read, by its name
    bool has_inputs = false;                         // in `values`
    std::set<std::string> committed;  // ends of steps: by us, on their way too, or found in the log
    std::map<std::string, std::uint32_t> recomputed;  // how often a committed result was lost, by step
  };
  struct End {
    bool over = false;                         // it was answered, and ends without having begun
    bool cancelled = false;                    // its client went away, or an operator wants it
    std::shared_ptr<proto::FinishRun> finish;  // once the run has ended
    Values outputs;                            // of a run that succeeded
    std::uint32_t tries = 0;
  };

  // --- beginning, and which gateway has the run (workflow_run.cpp) ---
  caf::typed_response_promise<proto::InferReply> Begin(const proto::InferRequest& request);
  void Submit();
  // With the record that the manager sent, and without a client.
  void GoOn();
  void ManagerIs(ClusterManagerActor manager);
  // The log knows this run. A run without another owner is ours from here on; a run that has ended is
  // answered so.
  void Register();
  void Registered(const absl::StatusOr<proto::RunRecord>& run);
  // Whether everything that the log has of the run was committed here.
  [[nodiscard]] bool Knows(const proto::RunRecord& run) const;
  // What is committed is not run again, unless its result is lost; the rest goes on with the inputs that the
  // log keeps.
  void Restore(const proto::RunRecord& run);
  void RestorePart(const std::string& step, const RunTensors::Stored& stored,
                   const std::shared_ptr<Restored>& restored);
  void GoOnWith(Restored& restored);
  // Another gateway has it now: nothing more is begun, and its end is waited for.
  void Yield();
  void Forget();
  void AnswerAs(const proto::RunRecord& run);
  void Cancel(const proto::CancelInfer& cancel);
  // As RunTensors' own, but waits for a manager that is away.
  void Store(const Values& values, RunTensors::Done<RunTensors::Stored> done);
  void Load(const RunTensors::Stored& stored, RunTensors::Done<Values> done);

  [[nodiscard]] absl::Status LostTooOften(const std::string& what, const std::string& why) const;

  // --- steps (workflow_run_steps.cpp) ---
  void Advance();
  // A step that may change a function's state waits until the log has the run's start.
  void RunStep(const proto::WorkflowStep& step);
  // The values that a step needs here as bytes have come.
  void FetchFor(const proto::WorkflowStep& step, const std::vector<std::string>& names);
  void StepEnded(const proto::WorkflowStep& step, const absl::StatusOr<StepCalls::Outcome>& outcome);
  // What is kept, and would cost more to compute again than to write, as bytes: then the step is committed.
  void Write(const proto::WorkflowStep& step, const StepCalls::Outcome& outcome);
  // Inputs of the step are lost with the worker that kept them: the steps that gave them are run again, and then this one.
  void InputsLost(const proto::WorkflowStep& step, const std::set<std::string>& inputs);
  // For good: what stands in for it is next, or the run has failed.
  void StepFailed(const std::string& step, const absl::Status& status);
  void Failed(const proto::WorkflowStep& step, const absl::Status& status);
  // That a step was skipped, or failed, is durable before a step that reads it is decided.
  void CommitEnd(const std::string& step, proto::StepEnd end, const absl::Status& status);
  // Whether the run goes on behind a step while the log still writes its end: not where a function's state went on with it,
  // nor while its manager is away.
  [[nodiscard]] bool GoesOnUnwritten(const proto::WorkflowStep& step, Duration took) const;
  // `written`: the outputs as the log is to keep them. `goes_on`: what reads the step need not wait for the log.
  void CommitStep(const proto::WorkflowStep& step, const Values& outputs, const Values& written,
                  bool goes_on);
  void Committed(const proto::WorkflowStep& step, const Values& outputs);
  void NotCommitted(const proto::WorkflowStep& step, const absl::Status& status);

  // --- the end (workflow_run.cpp) ---
  void Finish();
  void StoreEnd();
  void EndStored(const proto::RunRecord& run);
  void EndNotStored(const absl::Status& status);
  void Answer(const absl::Status& status, const Values& outputs = {});
  void Reply(const absl::Status& status, const Values& outputs);

  const WorkflowRunOptions options_;
  cluster::WorkflowProgress progress_;
  PendingCalls calls_;
  RunTensors tensors_;
  RunSession session_;
  StepCalls step_calls_;
  ClusterManagerActor manager_;  // null: it is away
  Client client_;
  proto::StartRun start_;
  Results results_;
  Ownership ownership_;
  End end_;
};

}  // namespace troupe::actors
