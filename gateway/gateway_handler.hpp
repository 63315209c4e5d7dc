// GATEWAY HANDLER: chooses the exchange that answers a request by its path. It has no state of its own; safe
// from several threads.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gateway/access_control.hpp"
#include "gateway/cors.hpp"
#include "gateway/gateway_server.hpp"
#include "gateway/http_message.hpp"
#include "gateway/idempotency.hpp"
#include "gateway/metrics.hpp"
#include "gateway/route.hpp"
#include "gateway/shared_client.hpp"

namespace troupe::gateway {

class GatewayHandler final : public HttpHandler {
 public:
  GatewayHandler(const GatewayOptions& options, InferenceService& service, ClusterAdmin* admin,
                 std::shared_ptr<prometheus::Registry> registry);
  ~GatewayHandler() override;
  std::shared_ptr<HttpExchange> Begin(const HttpRequestHead& head) override;
  [[nodiscard]] bool IsProbe(const HttpRequestHead& head) const override;
  [[nodiscard]] std::string Headers(const HttpRequestHead& head) const override;
  // The server's load for /metrics; none before.
  void SetLoadSource(std::function<HttpServerLoad()> load) { load_ = std::move(load); }

 private:
  std::shared_ptr<HttpExchange> Dispatch(Route route, const HttpRequestHead& head,
                                         const proto::Caller& caller);
  [[nodiscard]] SharedClient Client(const HttpRequestHead& head, const proto::Caller& caller) const {
    return SharedClient(shared_, head, caller.name());
  }
  HttpResponse Describe(const Route& route);
  HttpResponse OfFunction(const Route& route);
  HttpResponse AllStatistics();
  HttpResponse OneStatistics(const Route& route);
  HttpResponse Metrics();
  std::shared_ptr<HttpExchange> Index();
  std::shared_ptr<HttpExchange> LoadOrUnload(Route route, const proto::Caller& caller);

  const GatewayOptions options_;
  InferenceService& service_;
  ClusterAdmin* const admin_;
  std::shared_ptr<prometheus::Registry> registry_;
  AccessControl access_;
  const Cors cors_;
  RequestMetrics metrics_;
  IdempotencyTable idempotency_;
  const std::shared_ptr<SharedMemory> shared_;  // null: none is offered
  std::function<HttpServerLoad()> load_;
};

}  // namespace troupe::gateway
