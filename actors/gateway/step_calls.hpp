// STEP CALLS: the calls that the steps of a workflow run make of functions: each goes to the router, again while it
// fails for passing reasons and time is left, and brings its outputs here.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/core/call.hpp"
#include "actors/gateway/run_tensors.hpp"
#include "actors/gateway/run_values.hpp"
#include "actors/gateway/view_cell.hpp"
#include "actors/interfaces/router.hpp"
#include "actors/interfaces/workflow_run.hpp"
#include "base/random.hpp"
#include "cluster/step_retry.hpp"
#include "proto/workflow.pb.h"
#include "transport/tensor_channel.hpp"

namespace troupe::actors {

// Owned by one workflow run, in whose thread everything happens; nothing is called back after Clear.
//
//   a step:  Begin -> its calls are under way -> ended (all of them have ended, or one has failed)
class StepCalls {
 public:
  using Values = std::vector<RunValue>;
  struct Options {
    RouterActor router;
    std::string workflow;  // its name
    std::string trace;     // the requests' ids begin with it
    // The run that a call is, of a step that calls a workflow.
    std::function<absl::StatusOr<WorkflowRunActor>(const proto::WorkflowStep&, std::uint64_t call)> inner_run;
    cluster::RetryLimits retry;
    Duration patience;               // how much longer than its timeout a call is waited for
    std::uint64_t seed;              // of the pauses between calls that are made again
    std::uint32_t tick;              // the kind of the Ticks that its owner hands to Retry
    const ViewCell* view = nullptr;  // of the cluster; null for nothing
  };
  struct Outcome {
    Values outputs;
    Duration took{};              // by the longest call, for the swap and the run
    proto::FunctionKey called{};  // what answered last
  };
  struct Run {
    std::function<bool()> running;  // a call that fails may be made again
    // Once for each step that has begun, unless Forget comes before.
    std::function<void(const proto::WorkflowStep& step, const absl::StatusOr<Outcome>& outcome)> ended;
    // Instead, when inputs that nodes kept are lost: their names.
    std::function<void(const proto::WorkflowStep& step, const std::set<std::string>& inputs)> lost;
  };
  // `self` owns it; all outlive it.
  StepCalls(RunSelf::pointer self, PendingCalls& calls, RunTensors& tensors,
            transport::TensorChannel& channel, Options options, Run run);

  // `inputs`: of each call, at least one: of the whole step, or of one slice of its for_each, of which so many are
  // under way at a time as it says. No call goes on beyond `until`. `keep`: outputs that are to stay where they are
  // computed.
  void Begin(const proto::WorkflowStep& step, const std::vector<Values>& inputs, Time until,
             const std::vector<std::string>& keep);
  // A pause is over.
  void Retry(std::uint64_t pause);
  // The calls end at the router, the node, the GPU's queue; none is made again. Calls that are runs are cancelled for
  // good, or else (`for_good` is false) go on, as the same calls of this run may be made again.
  void Cancel(bool for_good);
  // Another gateway has the run, or this one begins anew: what calls still answer is dropped.
  void Forget();
  void Clear();

 private:
  struct OneCall {
    proto::WorkflowStep step;
    std::size_t index = 0;
    Values inputs;
    std::uint32_t failures = 0;  // that passed, until now
    absl::Status last{};         // the last of them
  };
  using CallPtr = std::shared_ptr<OneCall>;
  // A step under way: its calls, and what they gave so far.
  struct Step {
    std::vector<Values> outputs;
    std::size_t open = 0;    // calls that have not ended
    std::size_t active = 0;  // of them: begun
    std::size_t at_once = 1;
    std::deque<CallPtr> waiting;  // not begun
    Time until{};
    std::vector<std::string> keep;
    Duration took{};
    proto::FunctionKey called;
    absl::Status failure;
    std::set<std::string> lost;  // inputs
    bool advanced = false;       // a call may have advanced its function's state: none of them is made again
  };
  void InvokeMore(const std::string& step);
  void Invoke(const CallPtr& call);
  // FailedPrecondition: the step's function is unloaded. An operator unloaded it on purpose, so the call is not made again.
  [[nodiscard]] absl::Status CheckLoaded(const proto::WorkflowStep& step) const;
  // An input of the call, with its bytes in the arena or where nodes keep them. What lies in the arena is added to `places`.
  absl::Status AddInput(const RunValue& input, proto::InferRequest& request,
                        std::vector<proto::TensorRef>& places);
  // Whose end releases the outputs of a call at its node.
  [[nodiscard]] std::shared_ptr<const void> Holder(std::uint64_t release) const;
  void Collect(const CallPtr& call, const proto::InferReply& reply, std::uint64_t life);
  // An answer that is not good: the call is made again after a pause, or the step has failed. `advanced`: the
  // function's state may have gone on, so that the same call again would count twice.
  void CallFailed(const CallPtr& call, const absl::Status& status, Duration retry_after, bool advanced);
  // Calls that wait to be made again are not made any more: of one step, or (empty) of all.
  void EndRetries(const std::string& step);
  void Called(const proto::WorkflowStep& step, const absl::Status& status);

  const RunSelf::pointer self_;
  PendingCalls& calls_;
  RunTensors& tensors_;
  transport::TensorChannel& channel_;
  Options options_;
  const Run run_;
  Random random_;
  std::map<std::string, Step> steps_;
  std::map<std::uint64_t, WorkflowRunActor> open_;  // calls at the router, or at a run of their own
  std::map<std::uint64_t, CallPtr> pauses_;         // calls that failed and are to be made again
  std::uint64_t next_ = 1;                          // number of a call, or of a pause
  std::uint64_t life_ = 0;                          // grows with Forget
};

}  // namespace troupe::actors
