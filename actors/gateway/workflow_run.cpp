// How a run begins, which gateway has it, and how it ends.
#include "actors/gateway/workflow_run.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/deliver.hpp"
#include "actors/core/time.hpp"
#include "actors/gateway/inner_runs.hpp"
#include "actors/gateway/workflow_run_actor.hpp"
#include "base/wire_status.hpp"

namespace troupe::actors {

WorkflowRun::WorkflowRun(caf::actor_config& config, WorkflowRunOptions options, proto::WorkflowSpec spec,
                         RouterActor router, ClusterManagerActor manager, transport::TensorChannel& channel)
    : RunSelf::base(config),
      options_(std::move(options)),
      progress_(spec),
      tensors_(this, calls_, router, manager, channel,
               {options_.commit_timeout, options_.inline_bytes, options_.logged}),
      session_(this, calls_, kTie, {options_.commit_timeout, options_.logged}),
      step_calls_(
          this, calls_, tensors_, channel,
          {.router = router,
           .workflow = progress_.spec().name(),
           .trace = options_.trace,
           .inner_run =
               [this, router, &channel](const proto::WorkflowStep& step, std::uint64_t call) {
                 return SpawnInnerRun(system(), options_, step, call, results_.recomputed[step.name()],
                                      router, manager_, channel);
               },
           .retry = options_.retry,
           .patience = options_.commit_timeout,
           .seed = options_.seed,
           .tick = kRetry,
           .view = options_.view.get()},
          {.running = [this] { return progress_.state() == proto::RUN_RUNNING; },
           .ended = [this](const proto::WorkflowStep& step,
                           const absl::StatusOr<StepCalls::Outcome>& outcome) { StepEnded(step, outcome); },
           .lost = [this](const proto::WorkflowStep& step,
                          const std::set<std::string>& inputs) { InputsLost(step, inputs); }}),
      manager_(std::move(manager)) {}

WorkflowRun::behavior_type WorkflowRun::make_behavior() {
  set_down_handler([this](caf::down_msg& down) { calls_.PeerDown(down.source); });
  ManagerIs(manager_);
  if (options_.record) After(this, Duration::zero(), MakeTick(kGoOn));
  return {
      [this](const proto::InferRequest& request) { return Begin(request); },
      [this](const proto::CancelInfer& cancel) { Cancel(cancel); },
      [this](const proto::RunTaken& taken) {
        if (ownership_.started && taken.claim() > ownership_.claim) Yield();
      },
      [this](const proto::Continue& message) { tensors_.Resume(message); },
      [this](const proto::Tick& tick) {
        if (tick.what() == kTie) return session_.OnTick();
        if (tick.what() == kGoOn) return GoOn();
        if (tick.what() == kRetry) return step_calls_.Retry(tick.token());
        if (tick.token() == ownership_.life) StoreEnd();
      },
      [this](const proto::PeerUp&, const caf::strong_actor_ptr& peer) {
        ManagerIs(caf::actor_cast<ClusterManagerActor>(peer));
      },
      [this](const proto::PeerLost&) {
        session_.Lost();
        tensors_.SetManager({});
        manager_ = ClusterManagerActor();
      },
  };
}

void WorkflowRun::on_exit() {
  calls_.Clear();
  tensors_.Clear();
  session_.Clear();
  end_.finish = nullptr;
  end_.outputs.clear();
  results_.values.DropOutputs();
  step_calls_.Clear();
  manager_ = ClusterManagerActor();
  client_.promise = {};  // holds this actor
}

void WorkflowRun::ManagerIs(ClusterManagerActor manager) {
  if (!manager) return;
  manager_ = manager;
  monitor(manager);
  tensors_.SetManager(manager);
  session_.Up(std::move(manager));
}

// --- beginning ---

caf::typed_response_promise<proto::InferReply> WorkflowRun::Begin(const proto::InferRequest& request) {
  auto promise = client_.promise = make_response_promise<proto::InferReply>();
  client_.wanted = {request.outputs().begin(), request.outputs().end()};
  start_.set_version_named(!request.function().version().empty());
  const auto timeout = request.timeout_ns() > 0 ? Duration(request.timeout_ns()) : options_.default_timeout;
  client_.expiry = Now(this) + std::min(timeout, options_.longest_timeout);
  if (const auto status = RunValues::CheckInputs(progress_.spec(), request); !status.ok()) {
    Answer(status);
    return promise;
  }
  results_.has_inputs = true;
  auto open = std::make_shared<int>(request.inputs_size());
  if (*open == 0) Submit();
  for (const auto& input : request.inputs()) {
    tensors_.Fetch(input, [this, open, spec = input.spec()](absl::StatusOr<RunValue> value) {
      if (end_.over) return;
      if (!value.ok()) return Answer(value.status());
      results_.values.Set(cluster::ValueOf("", spec.name()), std::move(*value));
      if (--*open == 0) Submit();
    });
  }
  return promise;
}

void WorkflowRun::Submit() {
  Values inputs;
  for (const auto& input : progress_.spec().inputs())
    inputs.push_back(*results_.values.Find(cluster::ValueOf("", input.spec().name())));
  tensors_.Store(inputs, [this](absl::StatusOr<RunTensors::Stored> stored) {
    if (!stored.ok()) return Answer(stored.status());
    start_.set_run(options_.run);
    start_.set_workflow(progress_.spec().name());
    start_.set_version(progress_.spec().version());
    start_.set_gateway(options_.gateway);
    start_.set_parent(options_.parent);
    start_.set_parent_step(options_.parent_step);
    start_.set_depth(options_.depth);
    *start_.mutable_inputs() = *std::move(stored);
    Register();
    // No other request can name a run without a key, so the log has no run of its name: its first steps need not wait.
    if (options_.keyed || !options_.logged || options_.depth > 0 || !manager_) return;
    ownership_.started = true;
    Advance();
  });
}

void WorkflowRun::GoOn() {
  client_.expiry = Now(this) + options_.default_timeout;
  start_ = options_.record->start();
  start_.set_gateway(options_.gateway);
  Register();
}

void WorkflowRun::Register() {
  session_.Register(start_, client_.expiry,
                    [this](const absl::StatusOr<proto::RunRecord>& run) { Registered(run); });
}

void WorkflowRun::Registered(const absl::StatusOr<proto::RunRecord>& run) {
  if (absl::IsAborted(run.status())) return Yield();
  if (!run.ok()) {
    if (!ownership_.logged) Forget();  // steps that were begun ahead count for nothing
    return Answer(run.status());
  }
  ownership_.logged = true;
  if (run->state() != proto::RUN_RUNNING) return AnswerAs(*run);
  if (ownership_.started && Knows(*run)) {
    ownership_.claim = run->claim();
    return;
  }
  Forget();
  ownership_.started = true;
  ownership_.claim = run->claim();
  // A client that names no version asks for the newest one, and gets the run with the version with which it began.
  if (const auto& version = run->start().version(); version != progress_.spec().version()) {
    const auto view = options_.view ? options_.view->Get() : nullptr;
    const auto* begun = view ? view->FindWorkflow(progress_.spec().name(), version) : nullptr;
    if (begun == nullptr) return Answer(VersionGone(options_.run, version));
    progress_ = cluster::WorkflowProgress(begun->spec());
  }
  Restore(*run);
}

// One claim more is our own, made when we came back; with several, another gateway had the run in between.
bool WorkflowRun::Knows(const proto::RunRecord& run) const {
  return run.claim() <= ownership_.claim + 1 && std::ranges::all_of(run.steps(), [this](const auto& step) {
           return results_.committed.contains(step.step());
         });
}

void WorkflowRun::Restore(const proto::RunRecord& run) {
  if (run.steps().empty() && results_.has_inputs) return Advance();
  auto restored = std::make_shared<Restored>();
  restored->open = 1 + run.steps_size();
  for (const auto& step : run.steps()) {
    if (progress_.ends().Step(step.step()) == nullptr)
      return Answer(absl::DataLossError("the run log has a step of another workflow"));
    restored->ends.emplace(step.step(), cluster::OutcomeOf(step));
    results_.recomputed[step.step()] = step.recomputed();
  }
  // The client that sent the inputs has them; the log refused different ones.
  RestorePart("", results_.has_inputs ? RunTensors::Stored() : run.start().inputs(), restored);
  for (const auto& step : run.steps()) RestorePart(step.step(), step.outputs(), restored);
}

// The outputs of one step, or with "" the inputs.
void WorkflowRun::RestorePart(const std::string& step, const RunTensors::Stored& stored,
                              const std::shared_ptr<Restored>& restored) {
  std::vector<std::string> names;
  for (const auto& tensor : stored) names.push_back(cluster::ValueOf(step, tensor.spec().name()));
  Load(stored, [this, step, names, restored, life = ownership_.life](const absl::StatusOr<Values>& values) {
    if (life != ownership_.life) return;
    for (std::size_t i = 0; values.ok() && i < names.size(); ++i) results_.values.Set(names[i], (*values)[i]);
    const bool lost = absl::IsNotFound(values.status()) || absl::IsDataLoss(values.status());
    if (lost && !step.empty()) {
      restored->lost[step] = values.status();
    } else if (!values.ok()) {
      restored->failed = {step.empty() ? "inputs" : step, values.status()};
    }
    if (--restored->open == 0) GoOnWith(*restored);
  });
}

void WorkflowRun::GoOnWith(Restored& restored) {
  cluster::StepEnds ends(progress_.spec());
  for (const auto& [step, outcome] : restored.ends) {
    results_.committed.insert(step);
    ends.Set(step, outcome);
  }
  for (const auto& step : cluster::StepsWithoutGround(progress_.spec(), ends)) {
    ends.Clear(step);
    ++results_.recomputed[step];  // its next end takes the place of the one in the log
  }
  if (const auto& [what, why] = restored.failed; !why.ok()) {
    // An output that cannot be computed again is lost: the run cannot go on.
    progress_.Fail(what, why);
    return Advance();
  }
  results_.has_inputs = true;
  std::erase_if(restored.ends, [&](const auto& end) { return ends.Find(end.first) == nullptr; });
  std::set<std::string> lost;
  for (const auto& [step, why] : restored.lost)
    if (ends.Find(step) != nullptr) lost.insert(step);
  const auto again = cluster::StepsToRecompute(progress_.spec(), ends, lost);
  for (const auto& [step, outcome] : restored.ends)
    if (!again.contains(step)) progress_.End(step, outcome);
  for (const auto& step : again) {
    progress_.RunAgain(step);
    if (++results_.recomputed[step] <= options_.most_recomputed) continue;
    progress_.Fail(step, LostTooOften("its committed result", std::string(restored.lost.at(step).message())));
  }
  Advance();
}

// --- which gateway has it ---

void WorkflowRun::Forget() {
  ++ownership_.life;
  session_.Drop();  // of an earlier life: it would be told under the claim of this one
  step_calls_.Forget();
  results_.values.DropOutputs();
  results_.committed.clear();
  results_.recomputed.clear();
  end_.outputs.clear();
  end_.finish = nullptr;
  progress_ = cluster::WorkflowProgress(progress_.spec());
  if (end_.cancelled) progress_.Cancel();
}

void WorkflowRun::Yield() {
  Forget();
  ownership_.started = false;
  if (!client_.promise.pending()) return quit();  // no caller waits for its end
  Register();
}

// A run that had ended before: its end is the answer.
void WorkflowRun::AnswerAs(const proto::RunRecord& run) {
  Forget();
  client_.version = run.start().version();
  if (run.state() == proto::RUN_CANCELLED) return Answer(absl::CancelledError("the run was cancelled"));
  if (run.state() == proto::RUN_FAILED) {
    // A release before this code was kept did not say what kind of failure it was.
    return Answer(run.code() == 0 ? absl::InternalError(run.message()) : FromWire(run.code(), run.message()));
  }
  Load(run.outputs(), [this, life = ownership_.life](const absl::StatusOr<Values>& outputs) {
    if (life != ownership_.life) return;
    if (!outputs.ok()) return Answer(outputs.status());
    Answer(absl::OkStatus(), *outputs);
  });
}

// The run begins nothing more, and its calls end at the router, the node, the GPU's queue.
void WorkflowRun::Cancel(const proto::CancelInfer& cancel) {
  // A run with a call comes from a client: it goes on, and a client that asks again gets its outcome.
  if (cancel.call() != 0 && options_.keyed)
    return Reply(absl::CancelledError("its client went away; the run goes on"), {});
  end_.cancelled = true;
  progress_.Cancel();
  step_calls_.Cancel(true);
  if (ownership_.started) Advance();
}

// --- the end ---

void WorkflowRun::Finish() {
  if (end_.finish != nullptr || progress_.running() > 0) return;
  end_.finish = std::make_shared<proto::FinishRun>();
  end_.finish->set_run(options_.run);
  end_.finish->set_state(progress_.state());
  end_.finish->set_message(std::string(progress_.status().message()));
  if (progress_.state() == proto::RUN_FAILED)
    end_.finish->set_code(static_cast<int>(progress_.status().code()));
  if (progress_.state() == proto::RUN_SUCCEEDED) {
    for (const auto& binding : progress_.spec().outputs()) {
      // Without the outputs of steps that were skipped.
      const auto source = progress_.ends().SourceOf(binding);
      if (source.state != cluster::Source::State::kThere) continue;
      auto value = *results_.values.Find(source.value);
      value.spec.set_name(binding.tensor());
      end_.outputs.push_back(std::move(value));
    }
  }
  Store(end_.outputs, [this, life = ownership_.life](absl::StatusOr<RunTensors::Stored> stored) {
    if (life != ownership_.life) return;
    if (!stored.ok()) return EndNotStored(stored.status());
    *end_.finish->mutable_outputs() = *std::move(stored);
    StoreEnd();
  });
}

void WorkflowRun::StoreEnd() {
  if (end_.finish == nullptr) return;
  session_.Tell(*end_.finish, [this, life = ownership_.life](const absl::StatusOr<proto::RunReply>& reply) {
    if (life != ownership_.life) return;
    const auto status = StatusIn(reply);
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
    Answer(progress_.status(), end_.outputs);
  }
  quit();
}

// The client is told at once; the log is told that the run failed as soon as it takes it, so that no run
// stays RUNNING for ever because of a full disk.
void WorkflowRun::EndNotStored(const absl::Status& status) {
  Answer(progress_.status().ok() ? status : progress_.status());
  if (end_.finish->state() == proto::RUN_SUCCEEDED) {
    end_.finish->set_state(proto::RUN_FAILED);
    end_.finish->set_code(static_cast<int>(status.code()));
    end_.finish->set_message(absl::StrCat("its end could not be stored: ", status.message()));
    end_.finish->clear_outputs();
  }
  if (++end_.tries > options_.end_tries || absl::IsNotFound(status)) return quit();
  After(this, options_.end_retry, MakeTick(kStoreEnd, ownership_.life));
}

void WorkflowRun::Answer(const absl::Status& status, const Values& outputs) {
  Reply(status, outputs);
  if (end_.finish != nullptr) return;
  end_.over = true;
  quit();
}

void WorkflowRun::Reply(const absl::Status& status, const Values& outputs) {
  if (!client_.promise.pending()) return;
  proto::InferReply reply;
  SetStatus(status, reply);
  auto& function = *reply.mutable_function();
  function.set_name(progress_.spec().name());
  function.set_version(client_.version.empty() ? progress_.spec().version() : client_.version);
  reply.set_attempts(1);
  for (const auto& output : outputs) {
    const auto& name = output.spec.name();
    if (!status.ok() ||
        (!client_.wanted.empty() && std::ranges::find(client_.wanted, name) == client_.wanted.end()))
      continue;
    // Inline whatever the size: from here it goes to the HTTP front of this very process.
    auto& tensor = *reply.add_outputs();
    *tensor.mutable_spec() = output.spec;
    tensor.mutable_data()->set_inlined(*output.bytes);
  }
  Deliver(client_.promise, std::move(reply));
}

WorkflowRunActor SpawnWorkflowRun(caf::actor_system& system, WorkflowRunOptions options,
                                  proto::WorkflowSpec spec, RouterActor router, ClusterManagerActor manager,
                                  transport::TensorChannel& channel) {
  return caf::actor_cast<WorkflowRunActor>(system.spawn<WorkflowRun>(
      std::move(options), std::move(spec), std::move(router), std::move(manager), std::ref(channel)));
}

}  // namespace troupe::actors
