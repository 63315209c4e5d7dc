#include "actors/gateway/workflow_run.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/deliver.hpp"
#include "actors/core/time.hpp"
#include "actors/gateway/run_tensors.hpp"
#include "actors/gateway/run_values.hpp"
#include "base/status.hpp"
#include "cluster/workflow_schedule.hpp"

namespace troupe::actors {

namespace {

// A step under way: its calls, and what they gave so far.
struct StepCalls {
  std::vector<std::vector<RunValue>> outputs;
  std::size_t open = 0;
  absl::Status failure;
};

class WorkflowRun : public RunSelf::base {
 public:
  WorkflowRun(caf::actor_config& config, WorkflowRunOptions options, proto::WorkflowSpec spec,
              RouterActor router, ClusterManagerActor manager, transport::TensorChannel& channel)
      : RunSelf::base(config),
        options_(std::move(options)),
        progress_(spec),
        router_(std::move(router)),
        manager_(std::move(manager)),
        channel_(channel),
        tensors_(this, calls_, manager_, channel, {options_.commit_timeout, options_.inline_bytes}) {}

  const char* name() const override { return "workflow_run"; }

  behavior_type make_behavior() override {
    set_down_handler([this](caf::down_msg& down) { calls_.PeerDown(down.source); });
    monitor(manager_);
    return {
        [this](const proto::InferRequest& request) { return Begin(request); },
        [this](const proto::CancelInfer&) { Cancel(); },
        [this](const proto::Continue& message) { tensors_.Resume(message); },
        [this](const proto::Tick&) { StoreEnd(); },
    };
  }

  void on_exit() override {
    tensors_.Clear();
    end_ = nullptr;
    promise_ = {};  // holds this actor
    router_ = RouterActor();
    manager_ = ClusterManagerActor();
  }

 private:
  // --- beginning ---

  caf::typed_response_promise<proto::InferReply> Begin(const proto::InferRequest& request) {
    promise_ = make_response_promise<proto::InferReply>();
    auto promise = promise_;
    wanted_ = {request.outputs().begin(), request.outputs().end()};
    const auto timeout = request.timeout_ns() > 0 ? Duration(request.timeout_ns()) : options_.default_timeout;
    expiry_ = Now(this) + timeout;
    if (const auto status = RunValues::CheckInputs(progress_.spec(), request); !status.ok()) {
      Answer(status);
      return promise;
    }
    auto open = std::make_shared<int>(request.inputs_size());
    if (*open == 0) Start();
    for (const auto& input : request.inputs()) {
      tensors_.Fetch(input, [this, open, spec = input.spec()](absl::StatusOr<RunValue> value) {
        if (!promise_.pending()) return;
        if (!value.ok()) return Answer(value.status());
        values_.Set(spec.name(), std::move(*value));
        if (--*open == 0) Start();
      });
    }
    return promise;
  }

  void Start() {
    std::vector<RunValue> inputs;
    for (const auto& input : progress_.spec().inputs()) inputs.push_back(*values_.Find(input.spec().name()));
    tensors_.Store(inputs, [this](absl::StatusOr<RunTensors::Stored> stored) {
      if (!stored.ok()) return Answer(stored.status());
      proto::StartRun command;
      command.set_run(options_.run);
      command.set_workflow(progress_.spec().name());
      command.set_version(progress_.spec().version());
      command.set_gateway(options_.gateway);
      *command.mutable_inputs() = *std::move(stored);
      // With our own handle, so that a cancellation by an operator comes here at once.
      Call<proto::RunReply>(
          this, calls_, manager_, options_.commit_timeout, std::move(command),
          [this](const absl::StatusOr<proto::RunReply>& reply) {
            if (const auto status = StatusOf(reply); !status.ok()) return Answer(status);
            Started(reply->run());
          },
          caf::actor_cast<WorkflowRunActor>(this));
    });
  }

  // The run log may know this run from an earlier submission of it: then that one goes on, or its end is
  // ours.
  void Started(const proto::RunRecord& run) {
    started_ = true;
    if (run.start().version() != progress_.spec().version()) {
      return Answer(absl::FailedPreconditionError(absl::StrCat(
          "run '", options_.run, "' was begun with version ", run.start().version(), " of the workflow")));
    }
    return run.state() == proto::RUN_RUNNING ? Restore(run) : AnswerAs(run);
  }

  // What is committed is not run again; the rest goes on with the inputs that the log keeps.
  void Restore(const proto::RunRecord& run) {
    if (run.steps().empty()) return Advance();
    std::vector<std::string> names, committed;
    for (const auto& input : run.start().inputs()) names.push_back(input.spec().name());
    auto stored = run.start().inputs();
    for (const auto& step : run.steps()) {
      if (!HasStep(step.step()))
        return Answer(absl::DataLossError("the run log has a step of another workflow"));
      committed.push_back(step.step());
      for (const auto& output : step.outputs()) {
        names.push_back(absl::StrCat(step.step(), ".", output.spec().name()));
        *stored.Add() = output;
      }
    }
    tensors_.Load(stored, [this, names, committed](const absl::StatusOr<std::vector<RunValue>>& values) {
      if (!values.ok()) return Answer(values.status());
      for (std::size_t i = 0; i < names.size(); ++i) values_.Set(names[i], (*values)[i]);
      for (const auto& step : committed) progress_.Commit(step);
      Advance();
    });
  }

  [[nodiscard]] bool HasStep(const std::string& name) const {
    return std::ranges::any_of(progress_.spec().steps(),
                               [&](const auto& step) { return step.name() == name; });
  }

  // A run that had ended before: its end is the answer.
  void AnswerAs(const proto::RunRecord& run) {
    if (run.state() == proto::RUN_CANCELLED) return Answer(absl::CancelledError("the run was cancelled"));
    if (run.state() == proto::RUN_FAILED) return Answer(absl::InternalError(run.message()));
    tensors_.Load(run.outputs(), [this](const absl::StatusOr<std::vector<RunValue>>& outputs) {
      if (!outputs.ok()) return Answer(outputs.status());
      Answer(absl::OkStatus(), *outputs);
    });
  }

  // The run begins nothing more, and its calls end at the router, the node, the GPU's queue.
  void Cancel() {
    progress_.Cancel();
    CancelCalls();
    if (started_) Advance();
  }

  void CancelCalls() {
    for (const auto call : open_calls_) {
      proto::CancelInfer cancel;
      cancel.set_call(call);
      send(router_, std::move(cancel));
    }
    open_calls_.clear();
  }

  // --- steps ---

  void Advance() {
    if (progress_.state() != proto::RUN_RUNNING && progress_.state() != proto::RUN_PENDING) return Finish();
    for (const auto& step : progress_.TakeReady()) RunStep(progress_.Step(step));
  }

  void RunStep(const proto::WorkflowStep& step) {
    const auto calls = values_.CallsOf(step);
    if (!calls.ok()) return Failed(step, calls.status());
    auto& under_way = steps_[step.name()];
    under_way.outputs.resize(calls->size());
    under_way.open = calls->size();
    for (std::size_t i = 0; i < calls->size(); ++i) Invoke(step, i, (*calls)[i]);
  }

  void Invoke(const proto::WorkflowStep& step, std::size_t index, const std::vector<RunValue>& inputs) {
    proto::InferRequest request;
    request.mutable_function()->set_name(step.function());
    request.mutable_function()->set_version(step.version());
    request.set_workflow(progress_.spec().name());
    request.set_call(next_call_++);
    auto remaining = expiry_ - Now(this);
    if (step.timeout_ns() > 0) remaining = std::min(remaining, Duration(step.timeout_ns()));
    if (remaining <= Duration::zero())
      return Called(step, absl::DeadlineExceededError("the run's timeout has passed"));
    request.set_timeout_ns(remaining.count());
    std::vector<proto::TensorRef> places;
    for (const auto& input : inputs) {
      const auto ref = channel_.Put(std::as_bytes(std::span(*input.bytes)), input.spec.name());
      if (!ref.ok()) {
        for (const auto& place : places) static_cast<void>(channel_.Release(place));
        return Called(step, ref.status());
      }
      auto& tensor = *request.add_inputs();
      *tensor.mutable_spec() = input.spec;
      *tensor.mutable_data() = *ref;
      places.push_back(*ref);
    }
    const auto call = request.call();
    open_calls_.insert(call);
    Call<proto::InferReply>(this, calls_, router_, remaining + options_.commit_timeout, std::move(request),
                            [this, step, index, places, call](absl::StatusOr<proto::InferReply> reply) {
                              open_calls_.erase(call);
                              for (const auto& place : places) static_cast<void>(channel_.Release(place));
                              if (const auto status = StatusOf(reply); !status.ok())
                                return Called(step, status);
                              Collect(step, index, *reply);
                            });
  }

  // Brings the outputs of one call here; they may still lie in a node's arena.
  void Collect(const proto::WorkflowStep& step, std::size_t index, const proto::InferReply& reply) {
    auto open = std::make_shared<int>(reply.outputs_size());
    auto outputs = std::make_shared<std::vector<RunValue>>(static_cast<std::size_t>(reply.outputs_size()));
    const auto done = [this, step, index, outputs, release = reply.release()](const absl::Status& status) {
      if (release != 0) {
        proto::ReleaseOutputs message;
        message.set_release(release);
        send(router_, std::move(message));
      }
      if (status.ok()) steps_[step.name()].outputs[index] = std::move(*outputs);
      Called(step, status);
    };
    if (*open == 0) return done(absl::OkStatus());
    auto failure = std::make_shared<absl::Status>();
    for (int i = 0; i < reply.outputs_size(); ++i) {
      tensors_.Fetch(reply.outputs(i), [open, outputs, failure, done, i](absl::StatusOr<RunValue> value) {
        if (value.ok()) {
          (*outputs)[static_cast<std::size_t>(i)] = std::move(*value);
        } else {
          failure->Update(value.status());
        }
        if (--*open == 0) done(*failure);
      });
    }
  }

  void Called(const proto::WorkflowStep& step, const absl::Status& status) {
    auto& under_way = steps_[step.name()];
    under_way.failure.Update(status);
    if (--under_way.open > 0) return;
    auto ended = std::move(under_way);
    steps_.erase(step.name());
    if (!ended.failure.ok()) return Failed(step, ended.failure);
    auto outputs = RunValues::Join(step, ended.outputs);
    if (!outputs.ok()) return Failed(step, outputs.status());
    CommitStep(step, std::move(*outputs));
  }

  void Failed(const proto::WorkflowStep& step, const absl::Status& status) {
    progress_.Fail(step.name(), status);
    CancelCalls();  // of the steps beside it: nobody waits for them any more
    Advance();
  }

  // The outputs are durable before a step that needs them begins.
  void CommitStep(const proto::WorkflowStep& step, const std::vector<RunValue>& outputs) {
    tensors_.Store(outputs, [this, step, outputs](absl::StatusOr<RunTensors::Stored> stored) {
      if (!stored.ok()) return Failed(step, stored.status());
      if (progress_.state() != proto::RUN_RUNNING)
        return Failed(step, absl::CancelledError("the run has ended"));
      proto::CommitStep command;
      command.set_run(options_.run);
      command.set_step(step.name());
      *command.mutable_outputs() = *std::move(stored);
      Call<proto::RunReply>(this, calls_, manager_, options_.commit_timeout, std::move(command),
                            [this, step, outputs](const absl::StatusOr<proto::RunReply>& reply) {
                              if (const auto status = StatusOf(reply); !status.ok())
                                return Failed(step, status);
                              for (const auto& output : outputs)
                                values_.Set(absl::StrCat(step.name(), ".", output.spec.name()), output);
                              progress_.Commit(step.name());
                              Advance();
                            });
    });
  }

  // --- the end ---

  void Finish() {
    if (end_ != nullptr || progress_.running() > 0) return;
    end_ = std::make_shared<proto::FinishRun>();
    end_->set_run(options_.run);
    end_->set_state(progress_.state());
    end_->set_message(std::string(progress_.status().message()));
    if (progress_.state() == proto::RUN_SUCCEEDED) {
      for (const auto& binding : progress_.spec().outputs()) {
        auto value = *values_.Find(binding.value());
        value.spec.set_name(binding.tensor());
        outputs_.push_back(std::move(value));
      }
    }
    tensors_.Store(outputs_, [this](absl::StatusOr<RunTensors::Stored> stored) {
      if (!stored.ok()) return EndNotStored(stored.status());
      *end_->mutable_outputs() = *std::move(stored);
      StoreEnd();
    });
  }

  void StoreEnd() {
    Call<proto::RunReply>(this, calls_, manager_, options_.commit_timeout, *end_,
                          [this](const absl::StatusOr<proto::RunReply>& reply) {
                            if (const auto status = StatusOf(reply); !status.ok())
                              return EndNotStored(status);
                            EndStored(reply->run());
                          });
  }

  // The end that the log keeps counts: an operator's cancellation may have come before ours.
  void EndStored(const proto::RunRecord& run) {
    if (run.state() == proto::RUN_CANCELLED) {
      Answer(absl::CancelledError("the run was cancelled"));
    } else {
      Answer(progress_.status(), outputs_);
    }
    quit();
  }

  // The client is told at once; the log is told that the run failed as soon as it takes it, so that no run
  // stays RUNNING for ever because of a full disk.
  void EndNotStored(const absl::Status& status) {
    Answer(progress_.status().ok() ? status : progress_.status());
    if (end_->state() == proto::RUN_SUCCEEDED) {
      end_->set_state(proto::RUN_FAILED);
      end_->set_message(absl::StrCat("its end could not be stored: ", status.message()));
      end_->clear_outputs();
    }
    if (++end_tries_ > options_.end_tries || absl::IsNotFound(status)) return quit();
    After(this, options_.end_retry, proto::Tick());
  }

  void Answer(const absl::Status& status, const std::vector<RunValue>& outputs = {}) {
    if (!promise_.pending()) return;
    proto::InferReply reply;
    reply.set_code(static_cast<int>(status.code()));
    reply.set_message(std::string(status.message()));
    reply.mutable_function()->set_name(progress_.spec().name());
    reply.mutable_function()->set_version(progress_.spec().version());
    reply.set_attempts(1);
    for (const auto& output : outputs) {
      if (!status.ok() || !Wanted(output.spec.name())) continue;
      // Inline whatever the size: from here it goes to the HTTP front of this very process.
      auto& tensor = *reply.add_outputs();
      *tensor.mutable_spec() = output.spec;
      tensor.mutable_data()->set_inlined(*output.bytes);
    }
    Deliver(promise_, std::move(reply));
    if (end_ == nullptr) quit();
  }

  [[nodiscard]] bool Wanted(const std::string& name) const {
    return wanted_.empty() || std::find(wanted_.begin(), wanted_.end(), name) != wanted_.end();
  }

  const WorkflowRunOptions options_;
  cluster::WorkflowProgress progress_;
  RouterActor router_;
  ClusterManagerActor manager_;
  transport::TensorChannel& channel_;
  PendingCalls calls_;
  RunTensors tensors_;
  caf::typed_response_promise<proto::InferReply> promise_;
  std::vector<std::string> wanted_;
  Time expiry_{};
  RunValues values_;
  std::map<std::string, StepCalls> steps_;
  std::set<std::uint64_t> open_calls_;  // at the router
  std::uint64_t next_call_ = 1;
  bool started_ = false;  // the run log knows the run: a cancellation before that waits for it
  std::shared_ptr<proto::FinishRun> end_;  // once the run has ended
  std::vector<RunValue> outputs_;          // of a run that succeeded
  std::uint32_t end_tries_ = 0;
};

}  // namespace

WorkflowRunActor SpawnWorkflowRun(caf::actor_system& system, WorkflowRunOptions options,
                                  proto::WorkflowSpec spec, RouterActor router, ClusterManagerActor manager,
                                  transport::TensorChannel& channel) {
  return caf::actor_cast<WorkflowRunActor>(system.spawn<WorkflowRun>(
      std::move(options), std::move(spec), std::move(router), std::move(manager), std::ref(channel)));
}

}  // namespace troupe::actors
