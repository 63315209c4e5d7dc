#include "actors/daemon/vital.hpp"

#include <spdlog/spdlog.h>

#include <caf/error.hpp>
#include <caf/exit_reason.hpp>
#include <cstdlib>
#include <utility>

namespace troupe::actors {

namespace {

bool WasAskedTo(const caf::error& reason) {
  return !reason || reason == caf::exit_reason::user_shutdown || reason == caf::exit_reason::kill;
}

}  // namespace

void EndProcessWith(const caf::actor& actor, std::string name) {
  actor->attach_functor([name = std::move(name)](const caf::error& reason) {
    if (WasAskedTo(reason)) return;
    spdlog::critical("{} ended by itself ({}): this process ends with it, to be started anew", name,
                     caf::to_string(reason));
    spdlog::shutdown();
    std::_Exit(kVitalActorEnded);  // nothing that is left here can be relied on
  });
}

}  // namespace troupe::actors
