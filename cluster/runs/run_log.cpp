#include "cluster/runs/run_log.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/step_retry.hpp"

namespace troupe::cluster {

namespace {

// Run names become keys of the store, in front of a '/'.
bool MayNameARun(const std::string& run) {
  return !run.empty() && run.size() <= 128 && std::all_of(run.begin(), run.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

bool SameInputs(const proto::StartRun& a, const proto::StartRun& b) {
  return std::equal(a.inputs().begin(), a.inputs().end(), b.inputs().begin(), b.inputs().end(),
                    [](const proto::StoredTensor& x, const proto::StoredTensor& y) {
                      return x.inlined() == y.inlined() && x.blob() == y.blob() &&
                             x.spec().SerializeAsString() == y.spec().SerializeAsString();
                    });
}

// A tensor that several steps hand on counts once. A tensor that several runs have counts for each run.
Bytes BlobsOf(const proto::RunRecord& run) {
  std::map<std::string_view, Bytes> blobs;
  const auto add = [&blobs](const auto& tensors) {
    for (const auto& tensor : tensors)
      if (tensor.has_blob()) blobs[tensor.blob()] = Bytes(tensor.blob_bytes());
  };
  add(run.start().inputs());
  for (const auto& step : run.steps()) add(step.outputs());
  add(run.outputs());
  Bytes sum;
  for (const auto& [digest, size] : blobs) sum += size;
  return sum;
}

}  // namespace

bool RunEnded(proto::RunState state) {
  return state == proto::RUN_SUCCEEDED || state == proto::RUN_FAILED || state == proto::RUN_CANCELLED;
}

bool MayReopen(const proto::RunRecord& run) {
  return run.state() == proto::RUN_FAILED && MayReopen(static_cast<absl::StatusCode>(run.code()));
}

absl::Status RunLog::ValidateStart(const proto::StartRun& command) const {
  if (!MayNameARun(command.run())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", command.run(), "' cannot name a run: use 1 to 128 letters, digits, '-', '_' or '.'"));
  }
  const auto* known = StartOf(command.run());
  if (known != nullptr && known->workflow() != command.workflow()) {
    return absl::AlreadyExistsError(absl::StrCat("run '", command.run(), "' is one of workflow '",
                                                 known->workflow(), "': choose another key"));
  }
  if (known != nullptr && !SameInputs(*known, command)) {
    return absl::AlreadyExistsError(absl::StrCat("run '", command.run(),
                                                 "' was begun with other inputs: send those again to get its "
                                                 "outcome, or choose another key"));
  }
  if (known != nullptr && command.version_named() && known->version() != command.version()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "run '", command.run(), "' was begun with version ", known->version(), " of workflow '",
        known->workflow(), "', and version ", command.version(), " is asked for: name that version or none"));
  }
  return absl::OkStatus();
}

const proto::StartRun* RunLog::StartOf(const std::string& run) const {
  if (const auto* known = Find(run)) return &known->start();
  const auto starting = starting_.find(run);
  return starting == starting_.end() ? nullptr : &starting->second;
}

absl::Status RunLog::ValidateCommit(const std::string& run, std::uint64_t claim) const {
  const auto* known = Find(run);
  if (known == nullptr) return absl::NotFoundError(absl::StrCat("no run '", run, "' was started"));
  if (claiming_.contains(run) || claim < known->claim()) {
    return absl::AbortedError(absl::StrCat("run '", run, "' has changed hands since claim ", claim,
                                           " and goes on at gateway '", known->gateway(), "'"));
  }
  if (known->state() == proto::RUN_CANCELLED)
    return absl::FailedPreconditionError(absl::StrCat("run '", run, "' was cancelled"));
  return absl::OkStatus();
}

void RunLog::Apply(const proto::StartRun& command) {
  starting_.erase(command.run());
  auto [it, is_new] = runs_.try_emplace(command.run());
  if (!is_new) return;
  *it->second.mutable_start() = command;
  it->second.set_state(proto::RUN_RUNNING);
  it->second.set_gateway(command.gateway());
}

proto::ClaimRun RunLog::BeginClaim(const std::string& run, const std::string& gateway) {
  proto::ClaimRun command;
  command.set_run(run);
  command.set_gateway(gateway);
  command.set_claim(runs_.at(run).claim() + 1);
  claiming_.insert(run);
  return command;
}

void RunLog::Apply(const proto::ClaimRun& command) {
  claiming_.erase(command.run());
  const auto it = runs_.find(command.run());
  if (it == runs_.end() || command.claim() <= it->second.claim()) return;
  auto& run = it->second;
  run.set_claim(command.claim());
  run.set_gateway(command.gateway());
  if (!MayReopen(run)) return;
  Reopen(run);
  TakeBack(command.run());
}

void RunLog::TakeBack(const std::string& run) {
  const auto it =
      std::find_if(ended_.begin(), ended_.end(), [&](const Ended& ended) { return ended.run == run; });
  if (it == ended_.end()) return;
  Subtract(*it);
  ended_.erase(it);
}

void RunLog::Reopen(proto::RunRecord& run) {
  run.set_state(proto::RUN_RUNNING);
  run.clear_message();
  run.clear_code();
  run.clear_outputs();
  run.clear_finished_unix_ns();
}

void RunLog::Apply(const proto::CommitStep& command) {
  const auto it = runs_.find(command.run());
  if (it == runs_.end()) return;
  auto& steps = *it->second.mutable_steps();
  const auto step = std::find_if(steps.begin(), steps.end(),
                                 [&](const auto& known) { return known.step() == command.step(); });
  if (step == steps.end()) {
    *steps.Add() = command;
  } else if (step->recomputed() < command.recomputed()) {
    *step = command;  // what was committed before is lost
    ++steps_recomputed_;
  }
}

void RunLog::Apply(const proto::FinishRun& command) {
  const auto it = runs_.find(command.run());
  if (it == runs_.end() || RunEnded(it->second.state())) return;
  auto& run = it->second;
  run.set_state(command.state());
  run.set_message(command.message());
  run.set_code(command.code());
  *run.mutable_outputs() = command.outputs();
  run.set_finished_unix_ns(command.unix_ns());
  AddEnded({command.run(), Bytes(run.ByteSizeLong()), BlobsOf(run)});
}

void RunLog::AddEnded(Ended ended) {
  ended_bytes_ += ended.size;
  ended_blobs_ += ended.blobs;
  ended_.push_back(std::move(ended));
}

void RunLog::Subtract(const Ended& ended) {
  ended_bytes_ -= ended.size;
  ended_blobs_ -= ended.blobs;
}

const proto::CommitStep* RunLog::FindStep(const std::string& run, const std::string& step) const {
  const auto* known = Find(run);
  if (known == nullptr) return nullptr;
  const auto it = std::find_if(known->steps().begin(), known->steps().end(),
                               [&](const auto& committed) { return committed.step() == step; });
  return it == known->steps().end() ? nullptr : &*it;
}

const proto::RunRecord* RunLog::Find(const std::string& run) const {
  const auto it = runs_.find(run);
  return it == runs_.end() ? nullptr : &it->second;
}

std::map<std::string, std::vector<std::string>> RunLog::Unfinished() const {
  std::map<std::string, std::vector<std::string>> unfinished;
  for (const auto& [name, run] : runs_)
    if (!RunEnded(run.state())) unfinished[run.gateway()].push_back(name);
  return unfinished;
}

std::vector<const proto::RunRecord*> RunLog::List(const std::string& workflow) const {
  std::vector<const proto::RunRecord*> found;
  for (const auto& [name, run] : runs_)
    if (workflow.empty() || run.start().workflow() == workflow) found.push_back(&run);
  return found;
}

void RunLog::AddObjects(Digests& digests) const {
  for (const auto& [name, run] : runs_) AddObjectsOf(run, digests);
  for (const auto& [name, start] : starting_) AddObjectsOf(start, digests);
}

std::vector<proto::RunRecord> RunLog::TakeSurplus() {
  std::vector<proto::RunRecord> surplus;
  const auto too_large = [this] { return ended_bytes_ > limits_.bytes || ended_blobs_ > limits_.blobs; };
  for (auto oldest = ended_.begin();
       oldest != ended_.end() && (ended_.size() > limits_.runs || (ended_.size() > 1 && too_large()));) {
    // It goes on as soon as its claim is stored.
    if (claiming_.contains(oldest->run)) {
      ++oldest;
      continue;
    }
    auto node = runs_.extract(oldest->run);
    Subtract(*oldest);
    oldest = ended_.erase(oldest);
    if (!node.empty()) surplus.push_back(std::move(node.mapped()));
  }
  return surplus;
}

}  // namespace troupe::cluster
