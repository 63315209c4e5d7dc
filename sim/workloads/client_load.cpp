#include "sim/workloads/client_load.hpp"

#include "absl/strings/str_cat.h"

namespace troupe::sim {

WorkloadPlan DrawWorkload(Random& random) {
  WorkloadPlan plan;
  plan.functions = 2 + static_cast<std::uint32_t>(random.Below(4));
  plan.rate = 15 + static_cast<double>(random.Below(40));
  plan.bursts = random.Below(2) == 0;
  plan.churn = random.Below(5) < 3;
  plan.workflows = random.Below(5) < 2;
  plan.drains = random.Below(3) == 0;
  plan.keys = random.Below(2) == 0;
  return plan;
}

WorkloadPlan WithSiblings(WorkloadPlan plan, std::uint64_t seed) {
  Random random(seed ^ 0x51b11465ULL);
  plan.stateful = 1 + static_cast<std::uint32_t>(random.Below(3));
  return plan;
}

WorkloadPlan WithLongRuns(WorkloadPlan plan, std::uint64_t seed) {
  plan.long_runs = Random(seed ^ 0x10a617eULL).Below(3) == 0;
  return plan;
}

WorkloadPlan WithQuota(WorkloadPlan plan, std::uint64_t seed) {
  Random random(seed ^ 0x9007aULL);
  if (random.Below(3) == 0) plan.quota = 2 + static_cast<std::uint32_t>(random.Below(20));
  return plan;
}

WorkloadPlan WithUpdates(WorkloadPlan plan, std::uint64_t seed) {
  plan.updates = Random(seed ^ 0x5a4e1256ULL).Below(2) == 0;
  return plan;
}

WorkloadPlan WithSequences(WorkloadPlan plan, std::uint64_t seed) {
  plan.sequences = Random(seed ^ 0x5e90eULL).Below(2) == 0;
  return plan;
}

// This number, and the next one, leave the worlds of the seeds that tests name as they were.
WorkloadPlan WithCanaries(WorkloadPlan plan, std::uint64_t seed) {
  Random random(seed ^ 0xca4a11e0aULL);
  if (random.Below(3) == 0) plan.canaries = 1 + random.Below(1'000'000);
  return plan;
}

WorkloadPlan WithRedeployments(WorkloadPlan plan, std::uint64_t seed) {
  Random random(seed ^ 0xa4e320ULL);
  if (random.Below(3) == 0) plan.redeployments = 1 + random.Below(1'000'000);
  return plan;
}

WorkloadPlan WithConditions(WorkloadPlan plan, std::uint64_t seed) {
  plan.conditions = Random(seed ^ 0xc04dULL).Below(2) == 0;
  return plan;
}

WorkloadPlan WithStages(WorkloadPlan plan, std::uint64_t seed) {
  plan.stages = plan.churn && Random(seed ^ 0x57a6e5ULL).Below(3) == 0;
  return plan;
}

std::string ToString(const WorkloadPlan& plan) {
  return absl::StrCat(
      plan.functions, " functions, ", plan.stateful, " with state, ", plan.bursts ? "bursts" : "steady",
      " at ", plan.rate, "/s", plan.churn ? ", churn" : "", plan.stages ? " in stages" : "",
      plan.workflows ? ", workflows" : "", plan.workflows && plan.conditions ? " with conditions" : "",
      plan.drains ? ", drains" : "", plan.keys ? ", keys" : "", plan.long_runs ? ", long runs" : "",
      plan.quota > 0 ? absl::StrCat(", a quota of ", plan.quota, " %") : "", plan.updates ? ", updates" : "",
      plan.sequences ? ", sequences" : "", plan.canaries > 0 ? ", canaries" : "",
      plan.redeployments == 0 ? ""
      : plan.AnewShares()     ? ", redeployments of a shared model"
                              : ", redeployments");
}

Duration ClientLoad::Pause(Duration mean) {
  return Duration(static_cast<Duration::rep>(random_.Exponential(static_cast<double>(mean.count()))));
}

std::string ClientLoad::AnyGateway() {
  return cluster_.shape().GatewayNames()[Below(cluster_.shape().gateways)];
}

std::string ClientLoad::AnyStateful() {
  return absl::StrCat(kStateful, plan_.stateful > 1 ? Below(plan_.stateful) : 0);
}

std::set<std::string> ClientLoad::StatefulNames() const {
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < plan_.stateful; ++i) names.insert(absl::StrCat(kStateful, i));
  return names;
}

}  // namespace troupe::sim
