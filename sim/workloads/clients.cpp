#include "sim/workloads/clients.hpp"

namespace troupe::sim {

// In this order, which is that of the draws.
void Clients::Begin() {
  const WorkloadPlan& plan = load_.plan();
  load_.Begin();
  requests_.Begin();
  if (plan.churn) operators_.ChurnLoops();
  if (plan.workflows) {
    returning_.WorkflowLoop();
    operators_.CancelLoop();
  }
  if (plan.drains) operators_.DrainLoop();
  if (plan.keys) returning_.KeyLoop();
  if (plan.long_runs) requests_.LongLoop();
  if (plan.quota > 0) requests_.QuotaLoop();
  if (plan.updates) updates_.Loop();
  if (plan.sequences) sequences_.Loop();
  if (plan.canaries > 0) canaries_.Begin();
  if (plan.redeployments > 0) redeployments_.Begin();
  if (plan.redeployments > 0 && plan.sequences) redeployed_sequences_.Loop();
}

}  // namespace troupe::sim
