#include "shell/declarative/whole_models.hpp"

#include <utility>

namespace troupe::shell {

std::set<std::string> JoinStages(proto::AdminReply& functions, proto::AdminReply& workflows) {
  std::set<std::string> models;
  const auto listed = std::exchange(*functions.mutable_functions(), {});
  for (const auto& function : listed) {
    const auto& stage = function.record().stage();
    if (stage.number() > 1) continue;
    auto& whole = *functions.add_functions();
    whole = function;
    if (stage.number() == 0) continue;
    models.insert(stage.workflow());
    whole.mutable_record()->mutable_key()->set_name(stage.workflow());
    whole.mutable_record()->mutable_slo()->set_deadline_ns(stage.deadline_ns());
  }
  const auto submitted = std::exchange(*workflows.mutable_workflows(), {});
  for (const auto& workflow : submitted) {
    if (workflow.spec().stages() > 0) continue;
    auto& kept = *workflows.add_workflows();
    kept = workflow;
    CallAsFunctions(models, *kept.mutable_spec());
  }
  return models;
}

void CallAsFunctions(const std::set<std::string>& models, proto::WorkflowSpec& workflow) {
  for (auto& step : *workflow.mutable_steps()) {
    if (!models.contains(step.workflow())) continue;
    step.set_function(step.workflow());
    step.clear_workflow();
  }
}

}  // namespace troupe::shell
