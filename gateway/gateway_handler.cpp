#include "gateway/gateway_handler.hpp"

#include "base/status.hpp"
#include "gateway/admin_exchange.hpp"
#include "gateway/console.hpp"
#include "gateway/http_error.hpp"
#include "gateway/http_exchanges.hpp"
#include "gateway/infer_exchange.hpp"
#include "gateway/model_json.hpp"
#include "gateway/shared_exchange.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

HttpResponse Json(std::string body, int code = 200) {
  HttpResponse response;
  response.code = code;
  response.body = std::move(body);
  return response;
}

HttpResponse WrongMethod(Endpoint endpoint, std::string_view method) {
  HttpResponse response = ErrorResponse(
      405, Cat("method ", method.substr(0, 40), " is not offered here; use ", AllowedMethods(endpoint)));
  response.headers = Cat("Allow: ", AllowedMethods(endpoint), "\r\n");
  return response;
}

}  // namespace

GatewayHandler::GatewayHandler(const GatewayOptions& options, InferenceService& service, ClusterAdmin* admin,
                               std::shared_ptr<prometheus::Registry> registry)
    : options_(options),
      service_(service),
      admin_(admin),
      registry_(std::move(registry)),
      access_(options.access),
      cors_(options.cors_origins),
      metrics_(registry_),
      shared_(options.shared_memory ? std::make_shared<SharedMemory>(*options.shared_memory) : nullptr) {}

// The last requests may hold the shared memory for longer.
GatewayHandler::~GatewayHandler() {
  if (shared_ != nullptr) shared_->copies().Stop();
}

std::shared_ptr<HttpExchange> GatewayHandler::Begin(const HttpRequestHead& head) {
  auto route = ParseRoute(head.target);
  // Before any key is asked for: browsers send none with it.
  if (cors_.IsPreflight(head))
    return Ready(Cors::Preflight(route.ok() ? AllowedMethods(route->endpoint) : std::string_view()));
  if (!route.ok()) return Ready(ErrorResponse(route.status()));
  if (!MethodAllowed(route->endpoint, head.method)) return Ready(WrongMethod(route->endpoint, head.method));
  const auto scope = ScopeOf(route->endpoint, head.method);
  auto verdict = access_.Judge(scope, head, std::chrono::steady_clock::now());
  if (verdict.refusal) return Ready(*std::move(verdict.refusal));
  // A page of any site can have the browser of this machine's user send requests here. Without a key only
  // their origin tells them from the user's own.
  if (scope && verdict.caller.name().empty() && !head.origin.empty() && !cors_.Allows(head.origin))
    return Ready(ErrorResponse(403, Cat("requests of web pages need an API key, or an origin that "
                                        "--http-cors-origins names; found the origin '",
                                        head.origin.substr(0, 200), "'")));
  return Dispatch(*std::move(route), head, verdict.caller);
}

std::string GatewayHandler::Headers(const HttpRequestHead& head) const {
  return cors_.Headers(head);
}

bool GatewayHandler::IsProbe(const HttpRequestHead& head) const {
  return head.method == "GET" &&
         (head.target.starts_with("/v2/health/") || head.target == "/healthz" || head.target == "/metrics");
}

std::shared_ptr<HttpExchange> GatewayHandler::Dispatch(Route route, const HttpRequestHead& head,
                                                       const proto::Caller& caller) {
  switch (route.endpoint) {
    case Endpoint::kInfer:
      return MakeInferExchange(std::move(route.name), std::move(route.version), head, Client(head, caller),
                               {service_, metrics_, idempotency_, options_.max_request});
    case Endpoint::kSharedStatus:
    case Endpoint::kSharedRegister:
    case Endpoint::kSharedUnregister:
      return MakeSharedExchange(route, Client(head, caller));
    case Endpoint::kRepositoryIndex:
      return Index();
    case Endpoint::kRepositoryLoad:
    case Endpoint::kRepositoryUnload:
      return LoadOrUnload(std::move(route), caller);
    case Endpoint::kFunctions:
    case Endpoint::kFunction:
    case Endpoint::kCanary:
    case Endpoint::kPromote:
    case Endpoint::kRollBack:
    case Endpoint::kSharing:
    case Endpoint::kWorkflows:
    case Endpoint::kWorkflow:
    case Endpoint::kRuns:
    case Endpoint::kRun:
    case Endpoint::kImports:
    case Endpoint::kImport:
    case Endpoint::kUpload:
    case Endpoint::kCluster:
      if (admin_ == nullptr) return Ready(ErrorResponse(501, "this gateway does not manage a cluster"));
      return MakeAdminExchange(route, head, caller, options_.max_model, *admin_);
    default:
      return Ready(Describe(route));
  }
}

HttpResponse GatewayHandler::Describe(const Route& route) {
  switch (route.endpoint) {
    case Endpoint::kServerMetadata:
      return Json(ServerMetadataJson(options_.version, shared_ != nullptr));
    case Endpoint::kLive:
      return Json(HealthJson(service_.Live(), service_.Ready()), service_.Live() ? 200 : 503);
    case Endpoint::kReady:
      return Json(HealthJson(service_.Live(), service_.Ready()), service_.Ready() ? 200 : 503);
    case Endpoint::kHealthz:
      return Json(service_.Live() ? R"({"status":"ok"})" : R"({"status":"stopping"})",
                  service_.Live() ? 200 : 503);
    case Endpoint::kMetrics:
      return Metrics();
    case Endpoint::kConsole:
      return ConsoleFile(route.name);
    case Endpoint::kAllStatistics:
      return AllStatistics();
    case Endpoint::kModelStatistics:
      return OneStatistics(route);
    default:
      return OfFunction(route);
  }
}

HttpResponse GatewayHandler::OfFunction(const Route& route) {
  const auto function = service_.Find(route.name, route.version);
  if (!function.ok()) return ErrorResponse(function.status());
  if (route.endpoint == Endpoint::kModelReady)
    return Json(ModelReadyJson(**function), (*function)->ready ? 200 : 503);
  if (route.endpoint == Endpoint::kModelConfig) return Json(ModelConfigJson(**function));
  return Json(ModelMetadataJson(**function));
}

HttpResponse GatewayHandler::OneStatistics(const Route& route) {
  const auto function = service_.Find(route.name, route.version);
  if (!function.ok()) return ErrorResponse(function.status());
  std::vector<std::pair<FunctionPtr, FunctionStatistics>> all;
  // Without a version in the path: of all versions, as Triton does.
  const auto versions =
      route.version.empty() ? (*function)->versions : std::vector<std::string>{(*function)->version};
  for (const std::string& version : versions) {
    const auto described = service_.Find(route.name, version);
    const auto statistics = service_.Statistics(route.name, version);
    // A function that was removed between the calls is left out.
    if (described.ok() && statistics.ok()) all.emplace_back(*described, *statistics);
  }
  return Json(StatisticsJson(all));
}

HttpResponse GatewayHandler::AllStatistics() {
  std::vector<std::pair<FunctionPtr, FunctionStatistics>> all;
  for (const FunctionPtr& function : service_.List()) {
    // A workflow that was removed between the two calls is left out.
    if (auto statistics = service_.Statistics(function->name, function->version); statistics.ok()) {
      all.emplace_back(function, *statistics);
    }
  }
  return Json(StatisticsJson(all));
}

HttpResponse GatewayHandler::Metrics() {
  std::set<std::string> functions;
  for (const FunctionPtr& function : service_.List()) functions.insert(function->name);
  metrics_.Retain(functions);
  if (load_) metrics_.SetServerLoad(load_());
  if (shared_ != nullptr) metrics_.SetSharedMemory(shared_->load());
  HttpResponse response = Json(PrometheusText(*registry_));
  response.content_type = kPrometheusContentType;
  return response;
}

std::shared_ptr<HttpExchange> GatewayHandler::Index() {
  return std::make_shared<TextExchange>(kMaxControlBody, [this](const std::string& body, HttpReply reply) {
    const auto ready_only = ParseIndexRequest(body);
    ReplyWith(reply, ready_only.ok() ? Json(RepositoryIndexJson(service_.List(), *ready_only))
                                     : ErrorResponse(ready_only.status()));
  });
}

std::shared_ptr<HttpExchange> GatewayHandler::LoadOrUnload(Route route, const proto::Caller& caller) {
  return std::make_shared<TextExchange>(
      kMaxControlBody, [this, caller, route = std::move(route)](const std::string& body, HttpReply reply) {
        auto parameters = ParseLoadRequest(body);
        if (!parameters.ok()) return ReplyWith(reply, ErrorResponse(parameters.status()));
        auto done = [reply = std::make_shared<HttpReply>(std::move(reply))](const absl::Status& status) {
          ReplyWith(*reply, status.ok() ? Json("{}") : ErrorResponse(status));
        };
        if (route.endpoint == Endpoint::kRepositoryLoad) {
          service_.Load(caller, route.name, *std::move(parameters), std::move(done));
        } else {
          service_.Unload(caller, route.name, std::move(done));
        }
      });
}

}  // namespace troupe::gateway
