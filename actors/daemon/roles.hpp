// The roles of a daemon: each assembles its actors over the common parts, and takes them down again. Made by
// Start, stopped and destroyed by the Daemon in the reverse order of their start.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "actors/daemon/common.hpp"

namespace troupe::actors {

class Role {
 public:
  virtual ~Role() = default;
  // One line for people: what listens where.
  [[nodiscard]] virtual std::string Describe() const = 0;
  // OK, or why this role cannot do its work now.
  [[nodiscard]] virtual absl::Status Health() = 0;
  // Requests of clients would be answered here.
  [[nodiscard]] virtual bool Serves() { return true; }
  // Brings the metrics up to date; on the main thread, about once a second.
  virtual void Measure() = 0;
  // SIGUSR1: a manager makes a backup of what it keeps. On the main thread; blocks for as long as that takes.
  virtual void BackUp() {}
  // SIGHUP: reads files anew that may have changed. On the main thread.
  virtual void Reload() {}
  // Takes no new work, and lets what runs finish or hands it back, for at most `grace`.
  virtual void Stop(Duration grace) = 0;
};

absl::StatusOr<std::unique_ptr<Role>> StartManagerRole(Common& common);
// `operations`: where this daemon's /metrics is, for the manager's records.
absl::StatusOr<std::unique_ptr<Role>> StartNodeRole(Common& common, const std::string& operations);
absl::StatusOr<std::unique_ptr<Role>> StartGatewayRole(Common& common, const std::string& operations);

}  // namespace troupe::actors
