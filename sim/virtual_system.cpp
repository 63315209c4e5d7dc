#include "sim/virtual_system.hpp"

#include "actors/core/time.hpp"
#include "actors/interfaces/message_types.hpp"

namespace troupe::sim {
namespace {

std::unique_ptr<caf::actor_system_config> Configure() {
  auto config = std::make_unique<caf::actor_system_config>();
  actors::RegisterMessageTypes(*config);
  config->set("scheduler.policy", caf::atom("testing"));
  return config;
}

}  // namespace

VirtualSystem::VirtualSystem() : config_(Configure()), system_(*config_) {}

caf::scheduler::test_coordinator& VirtualSystem::scheduler() {
  return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
}

Time VirtualSystem::Now() {
  return actors::Now(&system_);
}

void VirtualSystem::Settle() {
  auto& coordinator = scheduler();
  while (coordinator.try_run_once()) {
  }
}

void VirtualSystem::RunTo(Time end) {
  auto& clock = scheduler().clock();
  Settle();
  while (!clock.schedule().empty()) {
    const auto due = clock.schedule().begin()->first;
    if (due.time_since_epoch() > end.time_since_epoch()) break;
    scheduler().advance_time(due > clock.now() ? due - clock.now() : caf::timespan(0));
    Settle();
  }
  if (Now() < end) scheduler().advance_time(end - Now());
  Settle();
}

void VirtualSystem::StandStill(Duration span) {
  scheduler().advance_time(span);
  Settle();
}

}  // namespace troupe::sim
