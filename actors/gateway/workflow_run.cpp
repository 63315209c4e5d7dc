#include "actors/gateway/workflow_run.hpp"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/core/call.hpp"
#include "actors/core/continuations.hpp"
#include "actors/core/deliver.hpp"
#include "actors/core/time.hpp"
#include "actors/gateway/run_values.hpp"
#include "base/status.hpp"
#include "cluster/workflow_schedule.hpp"

namespace troupe::actors {

namespace {

using RunSelf = WorkflowRunActor::extend<Hears<proto::Continue>>;
using transport::TensorData;

// A step under way: its calls, and what they gave so far.
struct StepCalls {
  std::vector<std::vector<RunValue>> outputs;
  std::size_t open = 0;
  absl::Status failure;
};

template <class Reply>
absl::Status StatusOf(const absl::StatusOr<Reply>& reply) {
  if (!reply.ok()) return reply.status();
  return {static_cast<absl::StatusCode>(reply->code()), reply->message()};
}

class WorkflowRun : public RunSelf::base {
 public:
  WorkflowRun(caf::actor_config& config, WorkflowRunOptions options, proto::WorkflowSpec spec,
              RouterActor router, ClusterManagerActor manager, transport::TensorChannel& channel)
      : RunSelf::base(config),
        options_(std::move(options)),
        progress_(spec),
        router_(std::move(router)),
        manager_(std::move(manager)),
        channel_(channel) {}

  const char* name() const override { return "workflow_run"; }

  behavior_type make_behavior() override {
    set_down_handler([this](caf::down_msg& down) { calls_.PeerDown(down.source); });
    monitor(manager_);
    return {
        [this](const proto::InferRequest& request) { return Begin(request); },
        [this](const proto::CancelInfer&) {
          progress_.Cancel();
          if (started_) Advance();
        },
        [this](const proto::Continue& message) { continuations_.Resume(message); },
    };
  }

  void on_exit() override {
    continuations_.Clear();
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
      Fetch(input, [this, open, spec = input.spec()](absl::StatusOr<RunValue> value) {
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
    Store(std::move(inputs), [this](absl::StatusOr<std::vector<proto::StoredTensor>> stored) {
      if (!stored.ok()) return Answer(stored.status());
      proto::StartRun command;
      command.set_run(options_.run);
      command.set_workflow(progress_.spec().name());
      command.set_version(progress_.spec().version());
      command.set_gateway(options_.gateway);
      for (auto& tensor : *stored) *command.add_inputs() = std::move(tensor);
      Call<proto::RunReply>(this, calls_, manager_, options_.commit_timeout, std::move(command),
                            [this](const absl::StatusOr<proto::RunReply>& reply) {
                              if (const auto status = StatusOf(reply); !status.ok()) return Answer(status);
                              started_ = true;
                              Advance();
                            });
    });
  }

  // --- steps ---

  void Advance() {
    if (progress_.state() != proto::RUN_RUNNING && progress_.state() != proto::RUN_PENDING) return Finish();
    for (const auto& step : progress_.TakeReady()) RunStep(progress_.Step(step));
  }

  void RunStep(const proto::WorkflowStep& step) {
    const auto calls = values_.CallsOf(step);
    if (!calls.ok()) {
      progress_.Fail(step.name(), calls.status());
      return Advance();
    }
    auto& under_way = steps_[step.name()];
    under_way.outputs.resize(calls->size());
    under_way.open = calls->size();
    for (std::size_t i = 0; i < calls->size(); ++i) Invoke(step, i, (*calls)[i]);
  }

  void Invoke(const proto::WorkflowStep& step, std::size_t index, const std::vector<RunValue>& inputs) {
    proto::InferRequest request;
    request.mutable_function()->set_name(step.function());
    request.mutable_function()->set_version(step.version());
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
    Call<proto::InferReply>(this, calls_, router_, remaining + options_.commit_timeout, std::move(request),
                            [this, step, index, places](absl::StatusOr<proto::InferReply> reply) {
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
      Fetch(reply.outputs(i), [open, outputs, failure, done, i](absl::StatusOr<RunValue> value) {
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
    Advance();
  }

  // The outputs are durable before a step that needs them begins.
  void CommitStep(const proto::WorkflowStep& step, std::vector<RunValue> outputs) {
    Store(outputs, [this, step, outputs](absl::StatusOr<std::vector<proto::StoredTensor>> stored) {
      if (!stored.ok()) return Failed(step, stored.status());
      proto::CommitStep command;
      command.set_run(options_.run);
      command.set_step(step.name());
      for (auto& tensor : *stored) *command.add_outputs() = std::move(tensor);
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
    if (finishing_ || progress_.running() > 0) return;
    finishing_ = true;
    proto::FinishRun command;
    command.set_run(options_.run);
    command.set_state(progress_.state());
    command.set_message(std::string(progress_.status().message()));
    std::vector<RunValue> outputs;
    if (progress_.state() == proto::RUN_SUCCEEDED) {
      for (const auto& binding : progress_.spec().outputs()) {
        auto value = *values_.Find(binding.value());
        value.spec.set_name(binding.tensor());
        outputs.push_back(std::move(value));
      }
    }
    Store(outputs, [this, command, outputs](absl::StatusOr<std::vector<proto::StoredTensor>> stored) mutable {
      if (!stored.ok()) return Answer(stored.status());
      for (auto& tensor : *stored) *command.add_outputs() = std::move(tensor);
      Call<proto::RunReply>(this, calls_, manager_, options_.commit_timeout, std::move(command),
                            [this, outputs](const absl::StatusOr<proto::RunReply>& reply) {
                              const auto status = StatusOf(reply);
                              if (!status.ok() && progress_.status().ok()) return Answer(status);
                              Answer(progress_.state() == proto::RUN_CANCELLED
                                         ? absl::CancelledError("the run was cancelled")
                                         : progress_.status(),
                                     outputs);
                            });
    });
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
    quit();
  }

  [[nodiscard]] bool Wanted(const std::string& name) const {
    return wanted_.empty() || std::find(wanted_.begin(), wanted_.end(), name) != wanted_.end();
  }

  // --- tensors ---

  template <class Then>
  void Fetch(const proto::Tensor& tensor, Then then) {
    const auto& spec = tensor.spec();
    if (tensor.data().has_inlined())
      return then(RunValue{spec, std::make_shared<const std::string>(tensor.data().inlined())});
    channel_.FetchAsync(
        tensor.data(), options_.commit_timeout,
        continuations_.Make<TensorData>(this, [spec, then](absl::StatusOr<TensorData> data) {
          if (!data.ok()) return then(absl::StatusOr<RunValue>(data.status()));
          const auto bytes = data->bytes();
          then(RunValue{spec, std::make_shared<const std::string>(reinterpret_cast<const char*>(bytes.data()),
                                                                  bytes.size())});
        }));
  }

  // Tensors as the run log keeps them: inline, or as blobs that are synced first.
  template <class Then>
  void Store(std::vector<RunValue> values, Then then) {
    auto stored = std::make_shared<std::vector<proto::StoredTensor>>(values.size());
    auto open = std::make_shared<std::size_t>(1);
    auto failure = std::make_shared<absl::Status>();
    auto close = std::make_shared<std::function<void()>>([stored, open, failure, then]() mutable {
      if (--*open > 0) return;
      if (!failure->ok()) return then(absl::StatusOr<std::vector<proto::StoredTensor>>(*failure));
      then(absl::StatusOr<std::vector<proto::StoredTensor>>(std::move(*stored)));
    });
    for (std::size_t i = 0; i < values.size(); ++i) {
      *(*stored)[i].mutable_spec() = values[i].spec;
      if (values[i].bytes->size() <= options_.inline_bytes) {
        (*stored)[i].set_inlined(*values[i].bytes);
        continue;
      }
      ++*open;
      StoreBlob(values[i], [stored, failure, close, i](const absl::StatusOr<std::string>& digest) {
        if (digest.ok()) {
          (*stored)[i].set_blob(*digest);
        } else {
          failure->Update(digest.status());
        }
        (*close)();
      });
    }
    (*close)();
  }

  template <class Then>
  void StoreBlob(const RunValue& value, Then then) {
    const auto ref = channel_.Put(std::as_bytes(std::span(*value.bytes)), value.spec.name());
    if (!ref.ok()) return then(absl::StatusOr<std::string>(ref.status()));
    proto::StoreBlob blob;
    *blob.mutable_data()->mutable_spec() = value.spec;
    *blob.mutable_data()->mutable_data() = *ref;
    Call<proto::StoreBlobReply>(
        this, calls_, manager_, options_.commit_timeout, std::move(blob),
        [this, place = *ref, then](const absl::StatusOr<proto::StoreBlobReply>& reply) {
          static_cast<void>(channel_.Release(place));
          const auto status = StatusOf(reply);
          then(status.ok() ? absl::StatusOr<std::string>(reply->digest()) : status);
        });
  }

  const WorkflowRunOptions options_;
  cluster::WorkflowProgress progress_;
  RouterActor router_;
  ClusterManagerActor manager_;
  transport::TensorChannel& channel_;
  PendingCalls calls_;
  Continuations continuations_;
  caf::typed_response_promise<proto::InferReply> promise_;
  std::vector<std::string> wanted_;
  Time expiry_{};
  RunValues values_;
  std::map<std::string, StepCalls> steps_;
  bool started_ = false;  // the run log knows the run: a cancellation before that waits for it
  bool finishing_ = false;
};

}  // namespace

WorkflowRunActor SpawnWorkflowRun(caf::actor_system& system, WorkflowRunOptions options,
                                  proto::WorkflowSpec spec, RouterActor router, ClusterManagerActor manager,
                                  transport::TensorChannel& channel) {
  return caf::actor_cast<WorkflowRunActor>(system.spawn<WorkflowRun>(
      std::move(options), std::move(spec), std::move(router), std::move(manager), std::ref(channel)));
}

}  // namespace troupe::actors
