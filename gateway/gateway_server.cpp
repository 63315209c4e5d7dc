#include "gateway/gateway_server.hpp"

#include <atomic>

#include "gateway/gateway_handler.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

class Server final : public GatewayServer {
 public:
  Server(const GatewayOptions& options, InferenceService& service, ClusterAdmin* admin,
         std::shared_ptr<prometheus::Registry> registry)
      : handler_(options, service, admin, std::move(registry)) {
    handler_.SetLoadSource([this] {
      const HttpServer* http = serving_.load();
      return http == nullptr ? HttpServerLoad() : http->load();
    });
  }

  absl::Status Listen(const HttpServerOptions& options) {
    auto http = HttpServer::Start(options, handler_);
    if (!http.ok()) return http.status();
    http_ = *std::move(http);
    serving_ = http_.get();
    return absl::OkStatus();
  }

  std::uint16_t port() const override { return http_->port(); }
  HttpServerLoad load() const override { return http_->load(); }
  void Stop(Duration grace) override { http_->Stop(grace); }

 private:
  GatewayHandler handler_;
  std::atomic<const HttpServer*> serving_{nullptr};  // requests may come before Start returns
  std::unique_ptr<HttpServer> http_;                 // stops before its handler goes
};

}  // namespace

absl::StatusOr<std::unique_ptr<GatewayServer>> GatewayServer::Start(
    const GatewayOptions& options, InferenceService& service, ClusterAdmin* admin,
    std::shared_ptr<prometheus::Registry> registry) {
  if (options.max_request > options.http.max_inflight_client ||
      options.max_model > options.http.max_inflight_client) {
    return absl::InvalidArgumentError(Cat("max_request (", FormatBytes(options.max_request),
                                          ") and max_model (", FormatBytes(options.max_model),
                                          ") must fit into max_inflight_client (",
                                          FormatBytes(options.http.max_inflight_client), ")"));
  }
  auto server = std::make_unique<Server>(options, service, admin, std::move(registry));
  if (absl::Status status = server->Listen(options.http); !status.ok()) return status;
  return server;
}

}  // namespace troupe::gateway
