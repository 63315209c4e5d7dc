// SCHEDULER PARTS: what the swap scheduler is made of. Each part owns one concept; all of them know the tables.
// Private to the scheduler.
#pragma once

#include <optional>
#include <utility>

#include "node/scheduling/batches.hpp"
#include "node/scheduling/gpu_chooser.hpp"
#include "node/scheduling/gpu_holds.hpp"
#include "node/scheduling/locality_turns.hpp"
#include "node/scheduling/model_homes.hpp"
#include "node/scheduling/model_names.hpp"
#include "node/scheduling/named_requests.hpp"
#include "node/scheduling/order_outcomes.hpp"
#include "node/scheduling/prefetcher.hpp"
#include "node/scheduling/request_table.hpp"
#include "node/scheduling/request_turns.hpp"
#include "node/scheduling/reservations.hpp"
#include "node/scheduling/runtime_assignments.hpp"
#include "node/scheduling/scheduler_tables.hpp"
#include "node/scheduling/state_turns.hpp"
#include "node/scheduling/victim_planner.hpp"
#include "node/scheduling/waiting_requests.hpp"
#include "node/scheduling/worker_changes.hpp"
#include "scheduling/slo_order.hpp"

namespace troupe::node {

struct SchedulerParts {
  SchedulerParts(SchedulerLimits limits, SchedulerPolicies policies, CostDefaults costs, Topology topology)
      : tables(limits, policies, costs, std::move(topology)) {
    if (policies.ordering.slo != nullptr) slo.emplace(*policies.ordering.slo);
  }
  SchedulerParts(const SchedulerParts&) = delete;
  SchedulerParts& operator=(const SchedulerParts&) = delete;

  SchedulerTables tables;
  SchedulerCounts counts;
  std::optional<SloOrder<FunctionNumber>>
      slo;                        // how functions stand by their SLO, where the ordering policy ranks them
  Decision decision;              // what was decided and not returned yet
  Time look_again = Time::max();  // what was left for later may be decided then

  // What looks at the tables and changes none.
  const VictimPlanner victims{tables};
  const GpuChooser chooser{tables, victims};
  // What is known of models and requests.
  Prefetcher prefetcher{tables, chooser, victims};
  ModelNames names{tables, prefetcher};
  WaitingRequests waiting{tables};
  RequestTable requests{*this, tables};
  StateTurns states{*this, tables};
  GpuHolds holds{tables, waiting};
  Batches batches{*this, tables};
  // What decides.
  Reservations reservations{*this, tables};
  ModelHomes homes{tables, reservations};
  RuntimeAssignments runtimes{*this, tables};
  RequestTurns by_request{*this, tables};
  LocalityTurns by_gpu{*this, tables};
  NamedRequests named{*this, tables};
  // What happens.
  OrderOutcomes outcomes{*this, tables};
  WorkerChanges workers{*this, tables};
};

}  // namespace troupe::node
