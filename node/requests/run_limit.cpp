#include "node/requests/run_limit.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::node {

namespace {

const char* Words(RunLimit::Source source) {
  switch (source) {
    case RunLimit::Source::kDeclared:
      return "declared by its deployment";
    case RunLimit::Source::kLearned:
      return "learned from its runs";
    case RunLimit::Source::kDefault:
      break;
  }
  return "that of functions of which too few runs are known";
}

}  // namespace

RunLimit RunLimitFor(Duration declared, const KnownRuns& known, std::uint32_t sm_percent,
                     const RunLimitRules& rules) {
  if (declared > Duration::zero()) return {declared, RunLimit::Source::kDeclared};
  if (known.times.runs() < rules.enough_runs) {
    Duration limit = rules.most;
    for (std::uint32_t cut = 0; cut < known.cuts && limit > rules.least; ++cut) limit /= 2;
    return {std::max(limit, rules.least), RunLimit::Source::kDefault};
  }
  Duration learned = known.times.Percentile(rules.percentile) * rules.factor;
  if (sm_percent > 0 && sm_percent < 100) learned = learned * 100 / sm_percent;
  return {std::clamp(learned, rules.least, rules.most), RunLimit::Source::kLearned};
}

absl::Status RunCut(const std::string& function, Duration ran, const RunLimit& limit) {
  return absl::DeadlineExceededError(
      absl::StrCat("function '", function, "': its run was cut after ", FormatDuration(ran),
                   " on a GPU; its run limit is ", FormatDuration(limit.limit), ", ", Words(limit.source),
                   "; deploy the function with a larger run_limit if its runs take longer than this"));
}

}  // namespace troupe::node
