#include "actors/manager/run_log.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

namespace {

// Run names become keys of the store, in front of a '/'.
bool MayNameARun(const std::string& run) {
  return !run.empty() && run.size() <= 128 && std::all_of(run.begin(), run.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

bool RunEnded(proto::RunState state) {
  return state == proto::RUN_SUCCEEDED || state == proto::RUN_FAILED || state == proto::RUN_CANCELLED;
}

absl::Status RunLog::ValidateStart(const proto::StartRun& command) const {
  if (!MayNameARun(command.run())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", command.run(), "' cannot name a run: use 1 to 128 letters, digits, '-', '_' or '.'"));
  }
  const auto* known = Find(command.run());
  if (known != nullptr && known->start().workflow() != command.workflow()) {
    return absl::AlreadyExistsError(absl::StrCat("run '", command.run(), "' is one of workflow '",
                                                 known->start().workflow(), "': choose another key"));
  }
  return absl::OkStatus();
}

absl::Status RunLog::ValidateCommit(const std::string& run) const {
  const auto* known = Find(run);
  if (known == nullptr) return absl::NotFoundError(absl::StrCat("no run '", run, "' was started"));
  if (known->state() == proto::RUN_CANCELLED)
    return absl::FailedPreconditionError(absl::StrCat("run '", run, "' was cancelled"));
  return absl::OkStatus();
}

void RunLog::Apply(const proto::StartRun& command) {
  auto [it, is_new] = runs_.try_emplace(command.run());
  if (!is_new) return;
  *it->second.mutable_start() = command;
  it->second.set_state(proto::RUN_RUNNING);
}

void RunLog::Apply(const proto::CommitStep& command) {
  const auto it = runs_.find(command.run());
  if (it == runs_.end()) return;
  if (!HasStep(command.run(), command.step())) *it->second.add_steps() = command;
}

void RunLog::Apply(const proto::FinishRun& command) {
  const auto it = runs_.find(command.run());
  if (it == runs_.end() || RunEnded(it->second.state())) return;
  auto& run = it->second;
  run.set_state(command.state());
  run.set_message(command.message());
  *run.mutable_outputs() = command.outputs();
  run.set_finished_unix_ns(command.unix_ns());
  ended_.push_back(command.run());
}

bool RunLog::HasStep(const std::string& run, const std::string& step) const {
  const auto* known = Find(run);
  return known != nullptr && std::any_of(known->steps().begin(), known->steps().end(),
                                         [&](const auto& committed) { return committed.step() == step; });
}

const proto::RunRecord* RunLog::Find(const std::string& run) const {
  const auto it = runs_.find(run);
  return it == runs_.end() ? nullptr : &it->second;
}

std::vector<const proto::RunRecord*> RunLog::List(const std::string& workflow) const {
  std::vector<const proto::RunRecord*> found;
  for (const auto& [name, run] : runs_)
    if (workflow.empty() || run.start().workflow() == workflow) found.push_back(&run);
  return found;
}

std::vector<proto::RunRecord> RunLog::TakeSurplus() {
  std::vector<proto::RunRecord> surplus;
  while (ended_.size() > kept_) {
    auto node = runs_.extract(ended_.front());
    ended_.pop_front();
    if (!node.empty()) surplus.push_back(std::move(node.mapped()));
  }
  return surplus;
}

}  // namespace troupe::actors
