#include "cluster/slo/step_trace.hpp"

#include "absl/strings/str_cat.h"

namespace troupe::cluster {

std::string StepTrace(const std::string& run, const proto::WorkflowStep& step, std::uint64_t call) {
  if (!step.has_for_each()) return absl::StrCat(run, "/", step.name());
  return absl::StrCat(run, "/", step.name(), "/", call);
}

bool IsTracedBy(std::string_view id, std::string_view run) {
  return id.size() > run.size() && id.starts_with(run) && id[run.size()] == '/';
}

}  // namespace troupe::cluster
