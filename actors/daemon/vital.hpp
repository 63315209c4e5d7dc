// VITAL ACTORS: actors without which their process is of no use. CAF ends an actor that throws and lets the
// rest go on: a daemon that answers its port and does nothing. Instead the process ends, its supervisor
// (systemd) starts it anew, and what runs outside of it (workers, host region, disk) is found again.
#pragma once

#include <caf/actor.hpp>
#include <caf/actor_cast.hpp>
#include <string>
#include <utility>

namespace troupe::actors {

inline constexpr int kVitalActorEnded = 70;  // EX_SOFTWARE

// From now on the process ends, with that exit code and a line in the log, when `actor` ends by anything but
// a request to.
void EndProcessWith(const caf::actor& actor, std::string name);

template <class Handle>
void EndProcessWith(const Handle& actor, std::string name) {
  EndProcessWith(caf::actor_cast<caf::actor>(actor), std::move(name));
}

}  // namespace troupe::actors
