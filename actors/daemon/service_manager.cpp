#include "actors/daemon/service_manager.hpp"

#include <systemd/sd-daemon.h>

#include <caf/behavior.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

namespace {

void Tell(const std::string& state) {
  (void)sd_notify(0, state.c_str());  // without systemd, or when it does not listen, the daemon goes on
}

}  // namespace

ServiceManager::ServiceManager(caf::actor_system& system)
    : pulse_(system.spawn(
          [answers = answers_]() -> caf::behavior { return {[answers](int) { ++*answers; }}; })) {}

void ServiceManager::Ready(const std::string& line) {
  Tell(absl::StrCat("READY=1\nSTATUS=", line));
  Look();
}

void ServiceManager::Look() {
  const auto answers = answers_->load();
  if (answers != seen_) Tell("WATCHDOG=1");
  seen_ = answers;
  caf::anon_send(pulse_, 0);
}

void ServiceManager::Stopping() {
  Tell("STOPPING=1");
}

}  // namespace troupe::actors
