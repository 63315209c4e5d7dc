// SERVICE MANAGER: what systemd, where it started this process, is told: that the daemon serves, that it
// still lives, and that it stops (Type=notify and WatchdogSec= of deploy/systemd). Elsewhere nothing happens.
// Used by the main thread alone.
//
// The daemon lives while its main thread comes round and its actors answer: an actor of no other use is asked
// each second, and systemd hears of life only when the one before was answered. Where it hears of none for
// WatchdogSec, it ends the process and starts it anew.
#pragma once

#include <atomic>
#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <cstdint>
#include <memory>
#include <string>

namespace troupe::actors {

class ServiceManager {
 public:
  explicit ServiceManager(caf::actor_system& system);

  // `line` is shown by `systemctl status`.
  void Ready(const std::string& line);
  // To be called each second.
  void Look();
  void Stopping();

 private:
  std::shared_ptr<std::atomic<std::uint64_t>> answers_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::uint64_t seen_ = 0;
  caf::actor pulse_;  // it ends when nothing refers to it
};

}  // namespace troupe::actors
