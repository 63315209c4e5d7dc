#include "sim/checkers/run_check.hpp"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"

namespace troupe::sim {

namespace {

std::string WrongWith(const proto::RunRecord& run, const RunRules& rules) {
  const auto& name = run.start().run();
  std::set<std::string> steps;
  for (const auto& step : run.steps())
    if (!steps.insert(step.step()).second)
      return absl::StrCat("run ", name, " has step '", step.step(), "' twice");
  if (rules.cancelled.contains(name) && run.state() != proto::RUN_CANCELLED)
    return absl::StrCat("run ", name, " was cancelled, and is ", proto::RunState_Name(run.state()));
  const bool asked = run.start().workflow() == rules.workflow;
  if (asked && run.state() == proto::RUN_SUCCEEDED && steps.size() != rules.steps)
    return absl::StrCat("run ", name, " has succeeded with ", steps.size(), " of its ", rules.steps,
                        " steps");
  for (const auto& step : run.steps()) {
    if (!asked) break;
    const bool skipped = step.end() == proto::STEP_SKIPPED;
    const bool expected = step.step() == rules.conditional && !rules.goes(QuestionOf(run));
    if (skipped != expected)
      return absl::StrCat("step '", step.step(), "' of run ", name, skipped ? " was" : " was not",
                          " skipped");
  }
  const bool ended = run.state() != proto::RUN_RUNNING && run.state() != proto::RUN_PENDING;
  if (!ended && !rules.unknown.contains(name)) return absl::StrCat("run ", name, " is under way still");
  return "";
}

}  // namespace

std::string QuestionOf(const proto::RunRecord& run) {
  for (const auto& input : run.start().inputs())
    if (input.spec().name() == "x") return input.inlined();
  return "";
}

std::vector<std::string> CheckRuns(const RequestLedger& ledger, const std::vector<proto::RunRecord>& log,
                                   const RunRules& rules) {
  std::vector<std::string> broken;
  std::map<std::string, int> succeeded;                       // by what came out
  std::map<std::string, std::vector<proto::RunState>> begun;  // by what went in
  std::set<std::string> names;
  for (const auto& run : log) {
    names.insert(run.start().run());
    if (auto wrong = WrongWith(run, rules); !wrong.empty()) broken.push_back(std::move(wrong));
    if (run.start().workflow() != rules.workflow) continue;
    if (!run.start().inputs().empty()) begun[QuestionOf(run)].push_back(run.state());
    if (run.state() == proto::RUN_SUCCEEDED && run.outputs_size() == 1) ++succeeded[run.outputs(0).inlined()];
  }
  for (const auto& name : rules.cancelled)
    if (!names.contains(name)) broken.push_back(absl::StrCat("run ", name, " was cancelled, and is gone"));
  // A question is asked with one key, or once.
  for (const auto& [question, states] : begun)
    if (states.size() > 1)
      broken.push_back(
          absl::StrCat("'", question, "' was asked with one key, and has ", states.size(), " runs"));
  for (const RequestRecord& request : ledger.all()) {
    if (request.function != rules.workflow || request.answers == 0) continue;
    const auto runs = succeeded.contains(request.question) ? succeeded.at(request.question) : 0;
    if (request.code == absl::StatusCode::kOk && runs != 1)
      broken.push_back(
          absl::StrCat("'", request.question, "' was answered, and ", runs, " runs succeeded with it"));
    if (request.code == absl::StatusCode::kInternal && runs > 0)
      broken.push_back(absl::StrCat("'", request.question, "' was told to have failed (", request.said,
                                    "), and its run succeeded"));
  }
  return broken;
}

}  // namespace troupe::sim
