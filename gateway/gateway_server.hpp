// GATEWAY SERVER: the HTTP front alone of a daemon with the gateway role: it serves the paths of route.hpp by
// calls of an InferenceService and a ClusterAdmin, which actors/ implements.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gateway/access_control.hpp"
#include "gateway/cluster_admin.hpp"
#include "gateway/http_server.hpp"
#include "gateway/inference_service.hpp"
#include "gateway/shared_memory.hpp"

namespace prometheus {
class Registry;
}

namespace troupe::gateway {

struct GatewayOptions {
  HttpServerOptions http;
  AccessOptions access;
  std::vector<std::string> cors_origins;  // of web pages that may read answers (cors.hpp); none by default
  Bytes max_request = MiB(256);           // body of an inference request
  Bytes max_model = GiB(2);               // body of a deployment; must not exceed http.max_inflight_client
  std::optional<SharedMemoryOptions> shared_memory{};  // of clients on this machine; none: not offered
  std::string version = "0.1.0";                       // of the program, for the server's metadata
};

// started -> stopped, once. Everything passed in outlives it. See HttpServer for threads and errors of Start.
class GatewayServer {
 public:
  // `admin` may be null: then the paths under /v2/troupe answer 501.
  static absl::StatusOr<std::unique_ptr<GatewayServer>> Start(const GatewayOptions& options,
                                                              InferenceService& service, ClusterAdmin* admin,
                                                              std::shared_ptr<prometheus::Registry> registry);
  virtual ~GatewayServer() = default;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
  [[nodiscard]] virtual HttpServerLoad load() const = 0;
  virtual void Stop(Duration grace) = 0;
};

}  // namespace troupe::gateway
