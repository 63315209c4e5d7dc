#include "gateway/operations_server.hpp"

#include <spdlog/spdlog.h>

#include "gateway/http_error.hpp"
#include "gateway/http_exchanges.hpp"
#include "gateway/json_text.hpp"
#include "gateway/log_levels.hpp"
#include "gateway/metrics.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

HttpResponse LogLevel() {
  HttpResponse response;
  response.body = Cat("{\"level\":\"", NameIn(kLogLevels, spdlog::get_level()), "\"}");
  return response;
}

HttpResponse SetLogLevel(std::string_view body, const std::function<void(const std::string&)>& changed) {
  const std::size_t begin = body.find_first_not_of(" \t\r\n\"");
  const std::size_t end = body.find_last_not_of(" \t\r\n\"");
  const std::string_view name = begin == std::string_view::npos ? "" : body.substr(begin, end - begin + 1);
  const auto level = FindNamed(kLogLevels, name);
  if (!level) {
    return ErrorResponse(
        400, Cat("'", name.substr(0, 40), "' is not a valid log level; there are ", NamesIn(kLogLevels)));
  }
  spdlog::set_level(*level);
  spdlog::log(spdlog::level::info, "log level set to {}", name);
  changed(std::string(name));
  return LogLevel();
}

class Handler final : public HttpHandler {
 public:
  Handler(const OperationsOptions& options, std::shared_ptr<prometheus::Registry> registry)
      : health_(options.health), on_log_level_(options.on_log_level), registry_(std::move(registry)) {}

  std::shared_ptr<HttpExchange> Begin(const HttpRequestHead& head) override {
    const std::string_view path = head.target.substr(0, head.target.find('?'));
    const bool reads = head.method == "GET" || head.method == "HEAD";
    if (path == "/metrics") return reads ? Ready(Metrics()) : WrongMethod("GET, HEAD");
    if (path == "/healthz") return reads ? Ready(Health()) : WrongMethod("GET, HEAD");
    if (path != "/loglevel") return Ready(ErrorResponse(404, "there are /metrics, /healthz and /loglevel"));
    if (reads) return Ready(LogLevel());
    if (head.method != "PUT") return WrongMethod("GET, HEAD, PUT");
    return std::make_shared<TextExchange>(
        KiB(1), [this, client = std::string(head.client)](const std::string& body, HttpReply reply) {
          ReplyWith(reply, SetLogLevel(body, [&](const std::string& level) {
                      if (on_log_level_) on_log_level_(client, level);
                    }));
        });
  }

 private:
  static std::shared_ptr<HttpExchange> WrongMethod(std::string_view allowed) {
    HttpResponse response = ErrorResponse(405, Cat("use ", allowed));
    response.headers = Cat("Allow: ", allowed, "\r\n");
    return Ready(std::move(response));
  }

  HttpResponse Metrics() {
    HttpResponse response;
    response.content_type = kPrometheusContentType;
    response.body = PrometheusText(*registry_);
    return response;
  }

  HttpResponse Health() {
    const absl::Status status = health_();
    HttpResponse response;
    response.body = R"({"status":"ok"})";
    if (status.ok()) return response;
    return ErrorResponse(503, Message(status));
  }

  const std::function<absl::Status()> health_;
  const std::function<void(const std::string&, const std::string&)> on_log_level_;
  std::shared_ptr<prometheus::Registry> registry_;
};

class Server final : public OperationsServer {
 public:
  Server(const OperationsOptions& options, std::shared_ptr<prometheus::Registry> registry)
      : handler_(options, std::move(registry)) {}

  absl::Status Listen(const HttpServerOptions& options) {
    auto http = HttpServer::Start(options, handler_);
    if (!http.ok()) return http.status();
    http_ = *std::move(http);
    return absl::OkStatus();
  }

  std::uint16_t port() const override { return http_->port(); }
  HttpServerLoad load() const override { return http_->load(); }
  void Stop(Duration grace) override { http_->Stop(grace); }

 private:
  Handler handler_;
  std::unique_ptr<HttpServer> http_;  // stops before its handler goes
};

}  // namespace

HttpServerOptions OperationsLimits() {
  HttpServerOptions limits;
  limits.max_connections = 64;
  limits.crowd_out = true;
  limits.max_head = KiB(8);
  limits.max_inflight = MiB(1);  // of bodies, which are log levels
  limits.max_answers = MiB(64);
  limits.max_answers_client = MiB(32);
  limits.idle_timeout = std::chrono::seconds(10);
  limits.head_timeout = std::chrono::seconds(5);
  limits.transfer_timeout = std::chrono::seconds(10);
  return limits;
}

absl::StatusOr<std::unique_ptr<OperationsServer>> OperationsServer::Start(
    const OperationsOptions& options, std::shared_ptr<prometheus::Registry> registry) {
  auto server = std::make_unique<Server>(options, std::move(registry));
  if (absl::Status status = server->Listen(options.http); !status.ok()) return status;
  return server;
}

}  // namespace troupe::gateway
