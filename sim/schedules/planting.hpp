// PLANTING: makes one error on purpose in a schedule that is about to begin (chaos/planted.hpp has them all).
#pragma once

#include "sim/chaos/fault_injector.hpp"
#include "sim/chaos/planted.hpp"
#include "sim/chaos/wait_watch.hpp"
#include "sim/workloads/clients.hpp"

namespace troupe::sim {

// `window`: in which things go wrong. All outlive the schedule.
void PlantIn(ChaosCluster& cluster, FaultInjector& injector, Clients& clients, WaitWatch& waits,
             Planted planted, Duration window);

}  // namespace troupe::sim
