#include "node/profiling/profile_trials.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "node/parts.hpp"
#include "node/requests/own_requests.hpp"
#include "node/runtimes/worker_orders.hpp"
#include "proto/open_dimension.hpp"

namespace troupe::node {

namespace {

constexpr std::size_t kMostInputOfATrial = std::size_t{128} << 20;

// Zeros for a run of `batch` requests; those that are too large for a message have no data yet.
absl::StatusOr<Tensors> InputsOf(const proto::FunctionRecord& function, std::uint32_t batch) {
  for (const auto& spec : function.inputs())
    if (batch > 1 && !proto::LeadingIsOpen(spec))
      return absl::FailedPreconditionError(
          absl::StrCat("function '", function.key().name(), "' cannot be profiled with a batch of ", batch,
                       ": the first dimension of its input '", spec.name(), "' is fixed"));
  Tensors inputs;
  const auto prepared = PrepareOrderFor(function, {}, batch);
  for (const auto& spec : prepared.prepare().inputs())
    if (!AddZeros(spec, kMostInputOfATrial, inputs))
      return absl::FailedPreconditionError(absl::StrCat("function '", function.key().name(),
                                                        "' cannot be profiled: its input '", spec.name(),
                                                        "' is of strings, or too large to be made of zeros"));
  return inputs;
}

bool AnyInArena(const Tensors& inputs) {
  for (const auto& input : inputs)
    if (input.data().has_arena()) return true;
  return false;
}

Duration ComputeAndCopies(const proto::RunOutcome& run) {
  return Duration(run.copy_in_ns() + run.compute_ns() + run.copy_out_ns());
}

}  // namespace

absl::StatusOr<ProfileTrials::Trial> ProfileTrials::Prepare(const proto::RunTrial& wish) const {
  const auto& settings = parts_.settings;
  if (wish.gpu() >= settings.gpus.size())
    return absl::NotFoundError(absl::StrCat("node '", settings.name, "' has no GPU ", wish.gpu()));
  if (const auto& kind = settings.gpus[wish.gpu()].kind; kind != wish.gpu_kind())
    return absl::FailedPreconditionError(
        absl::StrCat("GPU ", wish.gpu(), " of node '", settings.name, "' is of the kind '", kind,
                     "', and the experiment is about '", wish.gpu_kind(), "'"));
  proto::SubmitRequest request;
  *request.mutable_function() = wish.key();
  request.set_model_digest(wish.model_digest());
  const auto* function = parts_.models.FunctionOf(request);
  if (function == nullptr)
    return absl::NotFoundError(absl::StrCat(
        "node '", settings.name, "' does not have the model of function '", wish.key().name(), "' any more"));
  // Runs of zeros would advance it.
  if (!function->state().empty())
    return absl::FailedPreconditionError(
        absl::StrCat("function '", wish.key().name(), "' keeps state on the device: it cannot be profiled"));
  Trial trial{.wish = wish, .copy = parts_.models.CopyOf(*function), .begun = parts_.out.now()};
  const auto* model = parts_.models.Find(trial.copy);
  if (model == nullptr || !model->adopted)
    return absl::FailedPreconditionError(absl::StrCat("node '", settings.name,
                                                      "' has not adopted the model of function '",
                                                      wish.key().name(), "' yet; try again when it has"));
  TROUPE_ASSIGN_OR_RETURN(trial.inputs, InputsOf(*function, wish.batch()));
  trial.in_arena = NeedArena(trial.inputs);
  trial.row.set_sm_partition(wish.sm_partition());
  trial.row.set_quota_limit(wish.quota_limit());
  trial.row.set_batch(wish.batch());
  return trial;
}

void ProfileTrials::Refuse(Ask ask, const absl::Status& why) {
  proto::TrialEnded ended;
  SetStatus(why, ended);
  parts_.out.Add(Answer<proto::TrialEnded>{ask, std::move(ended)});
}

void ProfileTrials::On(const TrialAsked& event) {
  auto trial = Prepare(event.trial);
  if (!trial.ok()) return Refuse(event.ask, trial.status());
  const auto device = event.trial.gpu();
  if (trials_.contains(device)) {
    // The manager asks for one trial of a GPU at a time, so that it does not wait for this one any more: it was
    // started again, and may have cancelled this one's experiment before it asked for its next trial.
    Refuse(event.ask, absl::UnavailableError("the GPU's last trial is ending; ask again"));
    return Fail(trials_.at(device), "the manager has asked for another trial on its GPU");
  }
  trial->ask = event.ask;
  trials_.emplace(device, *std::move(trial));
  Begin();
}

void ProfileTrials::On(const TrialStopped& event) {
  for (auto& [device, trial] : trials_)
    if (trial.wish.experiment() == event.experiment) return Fail(trial, "its experiment was cancelled");
}

void ProfileTrials::Fail(Trial& trial, const std::string& reason) {
  if (!std::exchange(trial.failed, true)) {
    trial.row.set_state(proto::PROFILE_ROW_FAILED);
    trial.row.set_reason(reason);
  }
  if (!trial.running) return End(trial);
  parts_.requests.Cancel({kNoRouter, trial.serial});
  parts_.decisions.Decide();
}

void ProfileTrials::Begin() {
  std::vector<std::uint32_t> ready;
  for (const auto& [device, trial] : trials_)
    if (!trial.running) ready.push_back(device);
  for (const auto device : ready)
    if (const auto it = trials_.find(device); it != trials_.end() && !it->second.running) Run(it->second);
}

void ProfileTrials::Run(Trial& trial) {
  const auto& wish = trial.wish;
  const RequestId id{kNoRouter, parts_.requests.NextSerial()};
  trial.serial = id.sequence;
  trial.running = true;
  trial.run_begun = parts_.out.now();
  auto& held = parts_.requests.HoldTrial(id, trial.copy);
  held.message.mutable_id()->set_sequence(id.sequence);
  *held.message.mutable_function() = wish.key();
  held.message.set_model_digest(trial.copy.text());
  held.message.set_priority(kLeastUrgent);
  *held.message.mutable_inputs() = trial.inputs;
  held.expiry = trial.begun + Duration(wish.limit_ns());
  auto& share = held.profiled.emplace();
  share.set_sm_partition(wish.sm_partition());
  if (wish.quota_limit() < 100) share.set_quota_limit(wish.quota_limit());
  const NodeRequest request{.id = id,
                            .function = parts_.names.Function(wish.key().name()),
                            .model = trial.copy,
                            .priority = kLeastUrgent,
                            .expiry = held.expiry,
                            .trial = true,
                            .profiled_on = wish.gpu()};
  trial.in_arena && !trial.placed ? parts_.requests.AwaitZeros(request) : parts_.requests.Schedule(request);
}

void ProfileTrials::Ended(const Finished& finished, const HeldRequest& held) {
  if (finished.gpu != kNoGpu)
    parts_.requests.ReleaseSlices(finished.gpu, UnsentSlices(held.run, proto::InferReply()));
  for (auto& [device, trial] : trials_) {
    if (!trial.running || trial.serial != finished.id.sequence) continue;
    trial.running = false;
    if (!trial.placed && AnyInArena(held.message.inputs())) {
      trial.inputs = held.message.inputs();
      trial.placed = true;
    }
    trial.beside_load |= parts_.scheduler.gpus().loads().SomeOn(device);
    const auto now = parts_.out.now();
    if (finished.kind == FinishKind::kServed) {
      trial.throughput.Ended(now - trial.run_begun, ComputeAndCopies(held.run.run()), now);
      trial.run_bytes = std::max(trial.run_bytes, DeviceBytesOf(held.run.run()));
      if (!trial.failed && !trial.throughput.steady()) return;  // Begin has the next one run
    } else if (finished.kind == FinishKind::kExpired) {
      Fail(trial,
           absl::StrCat("its throughput was not steady within ",
                        FormatDuration(Duration(trial.wish.limit_ns())), ": ", trial.throughput.Describe()));
      return;
    } else {
      Fail(trial, std::string(finished.status.message()));
      return;
    }
    return End(trial);
  }
}

void ProfileTrials::End(Trial& trial) {
  auto ended = trials_.extract(trial.wish.gpu());
  auto& gone = ended.mapped();
  if (gone.placed) parts_.out.Add(FreeZeros{gone.inputs});
  auto& row = gone.row;
  row.set_took_ns((parts_.out.now() - gone.begun).count());
  row.set_beside_load(gone.beside_load);
  if (!gone.failed) {
    const auto figures = gone.throughput.Measure();
    row.set_throughput(figures.runs_per_second * gone.wish.batch());
    row.set_run_ns(figures.run.count());
    row.set_p50_ns(figures.p50.count());
    row.set_p90_ns(figures.p90.count());
    row.set_p99_ns(figures.p99.count());
    row.set_runs(figures.runs);
    row.set_run_bytes(gone.run_bytes.count());
  }
  proto::TrialEnded answer;
  *answer.mutable_row() = std::move(row);
  parts_.out.Add(Answer<proto::TrialEnded>{gone.ask, std::move(answer)});
}

}  // namespace troupe::node
