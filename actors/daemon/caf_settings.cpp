#include "actors/daemon/caf_settings.hpp"

#include <algorithm>
#include <caf/io/middleman.hpp>
#include <limits>
#include <thread>

#include "actors/interfaces/message_types.hpp"
#include "actors/peers/heartbeats.hpp"

namespace troupe::actors {

void ApplyCafSettings(const DaemonConfig& config, caf::actor_system_config& out) {
  RegisterMessageTypes(out);
  out.load<caf::io::middleman>();
  const auto threads =
      config.actors.threads > 0 ? config.actors.threads : std::max(2u, std::thread::hardware_concurrency());
  out.set("scheduler.max-threads", static_cast<std::size_t>(threads));
  out.set("scheduler.max-throughput", config.actors.throughput > 0
                                          ? static_cast<std::size_t>(config.actors.throughput)
                                          : std::numeric_limits<std::size_t>::max());
  out.set("scheduler.policy", config.actors.scheduler == ActorScheduler::kStealing ? caf::atom("stealing")
                                                                                   : caf::atom("sharing"));
  out.set("middleman.workers", static_cast<std::size_t>(config.actors.middleman_workers));
  SetHeartbeats(out);
}

}  // namespace troupe::actors
