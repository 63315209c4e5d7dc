// How a run begins, which gateway has it, and how it ends.
#include "actors/gateway/workflow_run.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/deliver.hpp"
#include "actors/core/time.hpp"
#include "actors/gateway/workflow_run_actor.hpp"
#include "base/wire_status.hpp"

namespace troupe::actors {

WorkflowRun::WorkflowRun(caf::actor_config& config, WorkflowRunOptions options, proto::WorkflowSpec spec,
                         RouterActor router, ClusterManagerActor manager, transport::TensorChannel& channel)
    : RunSelf::base(config),
      options_(std::move(options)),
      progress_(spec),
      router_(std::move(router)),
      channel_(channel),
      tensors_(this, calls_, manager, channel, {options_.commit_timeout, options_.inline_bytes}),
      session_(this, calls_, kTie, {options_.commit_timeout}),
      manager_(std::move(manager)),
      random_(options_.seed) {}

WorkflowRun::behavior_type WorkflowRun::make_behavior() {
  set_down_handler([this](caf::down_msg& down) { calls_.PeerDown(down.source); });
  ManagerIs(std::exchange(manager_, {}));
  if (options_.record) After(this, Duration::zero(), MakeTick(kGoOn));
  return {
      [this](const proto::InferRequest& request) { return Begin(request); },
      [this](const proto::CancelInfer& cancel) { Cancel(cancel); },
      [this](const proto::RunTaken& taken) {
        if (started_ && taken.claim() > claim_) Yield();
      },
      [this](const proto::Continue& message) { tensors_.Resume(message); },
      [this](const proto::Tick& tick) {
        if (tick.what() == kTie) return session_.OnTick();
        if (tick.what() == kGoOn) return GoOn();
        if (tick.what() == kRetry) return Retry(tick.token());
        if (tick.token() == life_) StoreEnd();
      },
      [this](const proto::PeerUp&, const caf::strong_actor_ptr& peer) {
        ManagerIs(caf::actor_cast<ClusterManagerActor>(peer));
      },
      [this](const proto::PeerLost&) {
        session_.Lost();
        tensors_.SetManager({});
      },
  };
}

void WorkflowRun::on_exit() {
  calls_.Clear();
  tensors_.Clear();
  session_.Clear();
  end_ = nullptr;
  pauses_.clear();
  promise_ = {};  // holds this actor
  router_ = RouterActor();
}

void WorkflowRun::ManagerIs(ClusterManagerActor manager) {
  if (!manager) return;
  monitor(manager);
  tensors_.SetManager(manager);
  session_.Up(std::move(manager));
}

// --- beginning ---

caf::typed_response_promise<proto::InferReply> WorkflowRun::Begin(const proto::InferRequest& request) {
  promise_ = make_response_promise<proto::InferReply>();
  auto promise = promise_;
  wanted_ = {request.outputs().begin(), request.outputs().end()};
  const auto timeout = request.timeout_ns() > 0 ? Duration(request.timeout_ns()) : options_.default_timeout;
  expiry_ = Now(this) + std::min(timeout, options_.longest_timeout);
  if (const auto status = RunValues::CheckInputs(progress_.spec(), request); !status.ok()) {
    Answer(status);
    return promise;
  }
  has_inputs_ = true;
  auto open = std::make_shared<int>(request.inputs_size());
  if (*open == 0) Submit();
  for (const auto& input : request.inputs()) {
    tensors_.Fetch(input, [this, open, spec = input.spec()](absl::StatusOr<RunValue> value) {
      if (over_) return;
      if (!value.ok()) return Answer(value.status());
      values_.Set(spec.name(), std::move(*value));
      if (--*open == 0) Submit();
    });
  }
  return promise;
}

void WorkflowRun::Submit() {
  Values inputs;
  for (const auto& input : progress_.spec().inputs()) inputs.push_back(*values_.Find(input.spec().name()));
  tensors_.Store(inputs, [this](absl::StatusOr<RunTensors::Stored> stored) {
    if (!stored.ok()) return Answer(stored.status());
    start_.set_run(options_.run);
    start_.set_workflow(progress_.spec().name());
    start_.set_version(progress_.spec().version());
    start_.set_gateway(options_.gateway);
    *start_.mutable_inputs() = *std::move(stored);
    session_.Register(start_, expiry_,
                      [this](const absl::StatusOr<proto::RunRecord>& run) { Registered(run); });
  });
}

void WorkflowRun::GoOn() {
  expiry_ = Now(this) + options_.default_timeout;
  start_ = options_.record->start();
  start_.set_gateway(options_.gateway);
  session_.Register(start_, expiry_,
                    [this](const absl::StatusOr<proto::RunRecord>& run) { Registered(run); });
}

void WorkflowRun::Registered(const absl::StatusOr<proto::RunRecord>& run) {
  if (absl::IsAborted(run.status())) return Yield();
  if (!run.ok()) return Answer(run.status());
  if (run->state() != proto::RUN_RUNNING) return AnswerAs(*run);
  if (started_ && Knows(*run)) {
    claim_ = run->claim();
    return;
  }
  Forget();
  started_ = true;
  claim_ = run->claim();
  if (run->start().version() != progress_.spec().version()) {
    return Answer(absl::FailedPreconditionError(absl::StrCat(
        "run '", options_.run, "' was begun with version ", run->start().version(), " of the workflow")));
  }
  Restore(*run);
}

// One claim more is our own, made when we came back; with several, another gateway had the run in between.
bool WorkflowRun::Knows(const proto::RunRecord& run) const {
  return run.claim() <= claim_ + 1 && std::ranges::all_of(run.steps(), [this](const auto& step) {
           return committed_.contains(step.step());
         });
}

void WorkflowRun::Restore(const proto::RunRecord& run) {
  if (run.steps().empty() && has_inputs_) return Advance();
  auto restored = std::make_shared<Restored>();
  restored->open = 1 + run.steps_size();
  for (const auto& step : run.steps()) {
    if (!HasStep(step.step()))
      return Answer(absl::DataLossError("the run log has a step of another workflow"));
    restored->committed.insert(step.step());
    recomputed_[step.step()] = step.recomputed();
  }
  // The client that sent the inputs has them; the log refused different ones.
  RestorePart("", has_inputs_ ? RunTensors::Stored() : run.start().inputs(), restored);
  for (const auto& step : run.steps()) RestorePart(step.step(), step.outputs(), restored);
}

// The outputs of one step, or with "" the inputs.
void WorkflowRun::RestorePart(const std::string& step, const RunTensors::Stored& stored,
                              const std::shared_ptr<Restored>& restored) {
  std::vector<std::string> names;
  for (const auto& tensor : stored)
    names.push_back(step.empty() ? tensor.spec().name() : absl::StrCat(step, ".", tensor.spec().name()));
  Load(stored, [this, step, names, restored, life = life_](const absl::StatusOr<Values>& values) {
    if (life != life_) return;
    for (std::size_t i = 0; values.ok() && i < names.size(); ++i) values_.Set(names[i], (*values)[i]);
    const bool lost = absl::IsNotFound(values.status()) || absl::IsDataLoss(values.status());
    if (lost && !step.empty()) {
      restored->lost[step] = values.status();
    } else if (!values.ok()) {
      restored->failed = {step.empty() ? "inputs" : step, values.status()};
    }
    if (--restored->open == 0) GoOnWith(*restored);
  });
}

void WorkflowRun::GoOnWith(const Restored& restored) {
  committed_.insert(restored.committed.begin(), restored.committed.end());
  if (const auto& [what, why] = restored.failed; !why.ok()) {
    // An output that cannot be computed again is lost: the run cannot go on.
    progress_.Fail(what, why);
    return Advance();
  }
  has_inputs_ = true;
  std::set<std::string> lost;
  for (const auto& [step, why] : restored.lost) lost.insert(step);
  const auto again = cluster::StepsToRecompute(progress_.spec(), restored.committed, lost);
  for (const auto& step : restored.committed)
    if (!again.contains(step)) progress_.Commit(step);
  for (const auto& step : again) {
    if (++recomputed_[step] <= options_.most_recomputed) continue;
    progress_.Fail(step, absl::DataLossError(absl::StrCat(
                             "its committed result was lost again after it had been computed anew ",
                             options_.most_recomputed, " times (", restored.lost.at(step).message(), ")")));
  }
  Advance();
}

bool WorkflowRun::HasStep(const std::string& name) const {
  return std::ranges::any_of(progress_.spec().steps(), [&](const auto& step) { return step.name() == name; });
}

void WorkflowRun::Store(const Values& values, RunTensors::Done<RunTensors::Stored> done) {
  tensors_.Store(values, [this, values, done](absl::StatusOr<RunTensors::Stored> stored) {
    if (stored.ok() || session_.registered()) return done(std::move(stored));
    session_.WhenTied([this, values, done](const absl::Status& status) {
      status.ok() ? Store(values, done) : done(status);
    });
  });
}

void WorkflowRun::Load(const RunTensors::Stored& stored, RunTensors::Done<Values> done) {
  tensors_.Load(stored, [this, stored, done](absl::StatusOr<Values> values) {
    if (values.ok() || session_.registered()) return done(std::move(values));
    session_.WhenTied([this, stored, done](const absl::Status& status) {
      status.ok() ? Load(stored, done) : done(status);
    });
  });
}

// --- which gateway has it ---

void WorkflowRun::Forget() {
  ++life_;
  session_.Drop();  // of an earlier life: it would be told under the claim of this one
  pauses_.clear();
  CancelCalls();
  steps_.clear();
  committed_.clear();
  recomputed_.clear();
  outputs_.clear();
  end_ = nullptr;
  progress_ = cluster::WorkflowProgress(progress_.spec());
  if (cancelled_) progress_.Cancel();
}

void WorkflowRun::Yield() {
  Forget();
  started_ = false;
  if (!promise_.pending()) return quit();  // no caller waits for its end
  session_.Register(start_, expiry_,
                    [this](const absl::StatusOr<proto::RunRecord>& run) { Registered(run); });
}

// A run that had ended before: its end is the answer.
void WorkflowRun::AnswerAs(const proto::RunRecord& run) {
  Forget();
  if (run.state() == proto::RUN_CANCELLED) return Answer(absl::CancelledError("the run was cancelled"));
  if (run.state() == proto::RUN_FAILED) {
    // A release before this code was kept did not say what kind of failure it was.
    return Answer(run.code() == 0 ? absl::InternalError(run.message()) : FromWire(run.code(), run.message()));
  }
  Load(run.outputs(), [this, life = life_](const absl::StatusOr<Values>& outputs) {
    if (life != life_) return;
    if (!outputs.ok()) return Answer(outputs.status());
    Answer(absl::OkStatus(), *outputs);
  });
}

// The run begins nothing more, and its calls end at the router, the node, the GPU's queue.
void WorkflowRun::Cancel(const proto::CancelInfer& cancel) {
  // A run with a call comes from a client: it goes on, and a client that asks again gets its outcome.
  if (cancel.call() != 0 && options_.keyed)
    return Reply(absl::CancelledError("its client went away; the run goes on"), {});
  cancelled_ = true;
  progress_.Cancel();
  CancelCalls();
  if (started_) Advance();
}

void WorkflowRun::CancelCalls() {
  for (const auto call : open_calls_) {
    proto::CancelInfer cancel;
    cancel.set_call(call);
    send(router_, std::move(cancel));
  }
  open_calls_.clear();
  EndRetries("");
}

// --- the end ---

void WorkflowRun::Finish() {
  if (end_ != nullptr || progress_.running() > 0) return;
  end_ = std::make_shared<proto::FinishRun>();
  end_->set_run(options_.run);
  end_->set_state(progress_.state());
  end_->set_message(std::string(progress_.status().message()));
  if (progress_.state() == proto::RUN_FAILED) end_->set_code(static_cast<int>(progress_.status().code()));
  if (progress_.state() == proto::RUN_SUCCEEDED) {
    for (const auto& binding : progress_.spec().outputs()) {
      auto value = *values_.Find(binding.value());
      value.spec.set_name(binding.tensor());
      outputs_.push_back(std::move(value));
    }
  }
  Store(outputs_, [this, life = life_](absl::StatusOr<RunTensors::Stored> stored) {
    if (life != life_) return;
    if (!stored.ok()) return EndNotStored(stored.status());
    *end_->mutable_outputs() = *std::move(stored);
    StoreEnd();
  });
}

void WorkflowRun::StoreEnd() {
  if (end_ == nullptr) return;
  session_.Tell(*end_, [this, life = life_](const absl::StatusOr<proto::RunReply>& reply) {
    if (life != life_) return;
    const auto status = StatusOf(reply);
    if (absl::IsAborted(status)) return Yield();
    if (!status.ok()) return EndNotStored(status);
    EndStored(reply->run());
  });
}

// The end that the log keeps counts: an operator's cancellation may have come before ours.
void WorkflowRun::EndStored(const proto::RunRecord& run) {
  if (run.state() == proto::RUN_CANCELLED) {
    Answer(absl::CancelledError("the run was cancelled"));
  } else {
    Answer(progress_.status(), outputs_);
  }
  quit();
}

// The client is told at once; the log is told that the run failed as soon as it takes it, so that no run
// stays RUNNING for ever because of a full disk.
void WorkflowRun::EndNotStored(const absl::Status& status) {
  Answer(progress_.status().ok() ? status : progress_.status());
  if (end_->state() == proto::RUN_SUCCEEDED) {
    end_->set_state(proto::RUN_FAILED);
    end_->set_code(static_cast<int>(status.code()));
    end_->set_message(absl::StrCat("its end could not be stored: ", status.message()));
    end_->clear_outputs();
  }
  if (++end_tries_ > options_.end_tries || absl::IsNotFound(status)) return quit();
  After(this, options_.end_retry, MakeTick(kStoreEnd, life_));
}

void WorkflowRun::Answer(const absl::Status& status, const Values& outputs) {
  Reply(status, outputs);
  if (end_ != nullptr) return;
  over_ = true;
  quit();
}

void WorkflowRun::Reply(const absl::Status& status, const Values& outputs) {
  if (!promise_.pending()) return;
  proto::InferReply reply;
  SetStatus(status, reply);
  reply.mutable_function()->set_name(progress_.spec().name());
  reply.mutable_function()->set_version(progress_.spec().version());
  reply.set_attempts(1);
  for (const auto& output : outputs) {
    const auto& name = output.spec.name();
    if (!status.ok() || (!wanted_.empty() && std::ranges::find(wanted_, name) == wanted_.end())) continue;
    // Inline whatever the size: from here it goes to the HTTP front of this very process.
    auto& tensor = *reply.add_outputs();
    *tensor.mutable_spec() = output.spec;
    tensor.mutable_data()->set_inlined(*output.bytes);
  }
  Deliver(promise_, std::move(reply));
}

WorkflowRunActor SpawnWorkflowRun(caf::actor_system& system, WorkflowRunOptions options,
                                  proto::WorkflowSpec spec, RouterActor router, ClusterManagerActor manager,
                                  transport::TensorChannel& channel) {
  return caf::actor_cast<WorkflowRunActor>(system.spawn<WorkflowRun>(
      std::move(options), std::move(spec), std::move(router), std::move(manager), std::ref(channel)));
}

}  // namespace troupe::actors
