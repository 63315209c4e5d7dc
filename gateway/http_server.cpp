#include "gateway/http_server.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <optional>
#include <thread>

#include "gateway/http_loop.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;

std::string TooManyConnections() {
  const std::string body = Cat(R"({"error":")", kTooManyConnections, R"("})");
  return Cat("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: ",
             body.size(), "\r\nRetry-After: 1\r\nConnection: close\r\n\r\n", body);
}

// The acceptor lives in the first loop and hands its sockets out in turn.
class Server final : public HttpServer {
 public:
  Server(const HttpServerOptions& options, HttpHandler& handler) : shared_(options, handler) {
    for (std::uint32_t i = 0; i < std::max(1U, options.threads); ++i) {
      loops_.push_back(std::make_unique<HttpLoop>(shared_));
    }
  }
  ~Server() override { Stop(Duration::zero()); }

  absl::Status Listen() {
    error_code error;
    const auto address = asio::ip::make_address(shared_.options.address, error);
    if (error) {
      return absl::InvalidArgumentError(Cat(
          "'", shared_.options.address, "' is not a valid IP address; give one such as 127.0.0.1 or ::1"));
    }
    const asio::ip::tcp::endpoint endpoint(address, shared_.options.port);
    acceptor_.emplace(loops_.front()->context());
    acceptor_->open(endpoint.protocol(), error);
    if (!error) acceptor_->set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_->bind(endpoint, error);
    if (!error) acceptor_->listen(1024, error);
    if (error) return ListenError(error);
    port_ = acceptor_->local_endpoint().port();
    return absl::OkStatus();
  }

  void Run() {
    asio::co_spawn(loops_.front()->context(), Accept(), asio::detached);
    for (const auto& loop : loops_) loop->Start();
  }

  std::uint16_t port() const override { return port_; }

  HttpServerLoad load() const override {
    return {shared_.connections.load(),
            shared_.budgets.bodies.used(),
            shared_.budgets.answers.used(),
            shared_.requests.load(),
            {shared_.crowded_out.load(), shared_.slow.load(), shared_.broken.load()},
            shared_.handshakes_done.load(),
            shared_.refused_tls.counts()};
  }

  void Stop(Duration grace) override {
    if (stopped_) return;
    stopped_ = true;
    shared_.draining = true;
    asio::post(loops_.front()->context(), [this] {
      error_code ignored;
      if (acceptor_) acceptor_->close(ignored);
    });
    for (const auto& loop : loops_) loop->Drain();
    // A poll, not a wait for an event: it happens once in a process's life, and costs the connections
    // nothing.
    const auto end = std::chrono::steady_clock::now() + grace;
    while (shared_.connections > 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (const auto& loop : loops_) loop->CloseAll();
    for (const auto& loop : loops_) loop->Join();
    acceptor_.reset();
    loops_.clear();
  }

 private:
  absl::Status ListenError(const error_code& error) const {
    const std::string where = Cat(shared_.options.address, ":", shared_.options.port);
    if (error == asio::error::address_in_use) {
      return absl::AlreadyExistsError(
          Cat("cannot listen on ", where, ": the port is in use; stop the program that has ",
              "it (ss -ltnp names it), or choose another port (0: any free one)"));
    }
    return absl::UnavailableError(Cat("cannot listen on ", where, ": ", error.message()));
  }

  asio::awaitable<void> Accept() {
    for (std::size_t turn = 0; acceptor_->is_open(); ++turn) {
      HttpLoop& loop = *loops_[turn % loops_.size()];
      asio::ip::tcp::socket socket(loop.context());
      const auto [error] = co_await acceptor_->async_accept(socket, asio::as_tuple(asio::use_awaitable));
      if (error == asio::error::operation_aborted || !acceptor_->is_open()) co_return;
      if (error) {
        co_await Pause(error);
        continue;
      }
      const auto others = shared_.connections.fetch_add(1);
      if (others < shared_.options.max_connections + shared_.options.probe_connections) {
        const bool is_full = others >= shared_.options.max_connections;
        const bool crowds = is_full && shared_.options.crowd_out;
        if (crowds) loop.CrowdOut();
        loop.Adopt(std::move(socket), is_full && !crowds);
      } else {
        shared_.connections.fetch_sub(1);
        // A reply in clear text means nothing to a TLS client.
        if (shared_.options.certificate != nullptr) continue;
        error_code ignored;
        socket.non_blocking(true, ignored);
        socket.write_some(asio::buffer(TooManyConnections()), ignored);
      }
    }
  }

  // Out of descriptors or memory: those come back when connections end.
  asio::awaitable<void> Pause(const error_code& error) {
    spdlog::warn("http: cannot accept a connection ({}); trying again in 100 ms", error.message());
    asio::steady_timer timer(loops_.front()->context(), std::chrono::milliseconds(100));
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }

  HttpShared shared_;
  std::vector<std::unique_ptr<HttpLoop>> loops_;
  std::optional<asio::ip::tcp::acceptor> acceptor_;  // goes before its loop
  std::uint16_t port_ = 0;
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              HttpHandler& handler) {
  auto server = std::make_unique<Server>(options, handler);
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  server->Run();
  return server;
}

}  // namespace troupe::gateway
