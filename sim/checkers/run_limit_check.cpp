#include "sim/checkers/run_limit_check.hpp"

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace troupe::sim {

namespace {

// Within which a neighbour is served once a GPU is free again: a model may have to come first.
constexpr Duration kNextServed = std::chrono::seconds(1);

class RunLimits {
 public:
  RunLimits(const RequestLedger& ledger, const std::vector<GpuRun>& runs, const RunLimitRules& rules)
      : ledger_(ledger), runs_(runs), rules_(rules) {}

  std::vector<std::string> Check() {
    for (const GpuRun& run : runs_) {
      CheckLength(run);
      if (rules_.calm && run.cut) CheckNeighbours(run);
    }
    if (rules_.once) CheckAnswers();
    return std::move(broken_);
  }

 private:
  static std::string Words(const GpuRun& run) {
    return absl::StrCat("the run of '", run.question, "' that had a GPU for ",
                        FormatDuration(run.end - run.begin), " until ",
                        FormatDuration(run.end.time_since_epoch()));
  }

  void CheckLength(const GpuRun& run) {
    const Duration took = run.end - run.begin;
    if (took > rules_.limit + rules_.limit / 8 + rules_.group)
      broken_.push_back(absl::StrCat(Words(run), " has a limit of ", FormatDuration(rules_.limit)));
    if (run.cut && took <= rules_.limit)
      broken_.push_back(absl::StrCat(Words(run), " was within its limit, and was cut"));
  }

  // Another request waits when it is cut, and none is served.
  void CheckNeighbours(const GpuRun& run) {
    bool waits = false;
    for (const RequestRecord& request : ledger_.all()) {
      if (request.function == rules_.function || request.run || request.answers == 0) continue;
      const bool served = request.code == absl::StatusCode::kOk;
      if (served && request.answered > run.end && request.answered <= run.end + kNextServed) return;
      waits |= request.asked < run.end && request.answered > run.end + kNextServed;
    }
    if (waits)
      broken_.push_back(absl::StrCat("within ", FormatDuration(kNextServed), " after ", Words(run),
                                     " no request to another function was served, and some wait"));
  }

  void CheckAnswers() {
    std::map<std::string, std::vector<const GpuRun*>> by_question;
    for (const GpuRun& run : runs_) by_question[run.question].push_back(&run);
    for (const RequestRecord& request : ledger_.all()) {
      const auto found = by_question.find(request.question);
      if (request.function != rules_.function || found == by_question.end()) continue;
      const auto& of = found->second;
      const bool cut = std::ranges::any_of(of, &GpuRun::cut);
      if (cut && of.size() > 1)
        broken_.push_back(absl::StrCat(Words(*of.front()), " was cut, and ran ", of.size(), " times"));
      const bool told = request.code == absl::StatusCode::kDeadlineExceeded &&
                        (absl::StrContains(request.said, "run limit") ||
                         request.answered >= request.asked + request.timeout);
      if (cut && !told)
        broken_.push_back(absl::StrCat(Words(*of.front()), " was cut, and its client heard ",
                                       absl::StatusCodeToString(request.code), " (", request.said, ")"));
    }
  }

  const RequestLedger& ledger_;
  const std::vector<GpuRun>& runs_;
  const RunLimitRules& rules_;
  std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> CheckRunLimits(const RequestLedger& ledger, const std::vector<GpuRun>& runs,
                                        const RunLimitRules& rules) {
  return RunLimits(ledger, runs, rules).Check();
}

}  // namespace troupe::sim
