// The operations port that every daemon has: GET /metrics, GET /healthz, GET and PUT /loglevel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gateway/http_server.hpp"

namespace prometheus {
class Registry;
}

namespace troupe::gateway {

// Connections are few and short: a monitor asks at once, and connects again for the next question.
[[nodiscard]] HttpServerOptions OperationsLimits();

struct OperationsOptions {
  // A client changed the log level: hears its address and the level. Any thread; may be empty.
  std::function<void(const std::string& client, const std::string& level)> on_log_level;
  HttpServerOptions http = OperationsLimits();
  // OK, or why the daemon is not healthy (503). Called on the server's thread; must not block.
  std::function<absl::Status()> health = [] { return absl::OkStatus(); };
};

// started -> stopped, once. See HttpServer for threads and errors of Start. The log level is spdlog's, of the
// process: trace, debug, info, warn, error, critical or off; PUT takes it as the body.
class OperationsServer {
 public:
  static absl::StatusOr<std::unique_ptr<OperationsServer>> Start(
      const OperationsOptions& options, std::shared_ptr<prometheus::Registry> registry);
  virtual ~OperationsServer() = default;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
  [[nodiscard]] virtual HttpServerLoad load() const = 0;
  virtual void Stop(Duration grace) = 0;
};

}  // namespace troupe::gateway
