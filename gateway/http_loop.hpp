// One thread of the server with the connections that it alone touches. Only http_*.cpp see this header.
#pragma once

#include <poll.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "gateway/http_charges.hpp"
#include "gateway/http_server.hpp"

namespace troupe::gateway {

class HttpConnection;

inline constexpr std::string_view kTooManyConnections =
    "the server has as many connections as it may (option http-connections); try again";

// What all loops share.
struct HttpShared {
  HttpShared(const HttpServerOptions& o, HttpHandler& h) : options(o), handler(h), budgets(o) {}
  const HttpServerOptions options;
  HttpHandler& handler;
  std::atomic<std::uint64_t> connections{0};
  HttpBudgets budgets;
  std::atomic<std::uint64_t> handshakes_done{0};
  TlsRefusals refused_tls;
  std::atomic<std::uint64_t> requests{0};
  std::atomic<std::uint64_t> crowded_out{0};
  std::atomic<std::uint64_t> slow{0};
  std::atomic<std::uint64_t> broken{0};
  std::atomic<bool> draining{false};
};

// The way back into a loop for replies from other threads; it may be used when the loop is gone, and then
// drops them.
class LoopGate {
 public:
  explicit LoopGate(boost::asio::io_context& context) : context_(&context) {}
  template <typename Work>
  void Post(Work work) {
    const std::lock_guard lock(mutex_);
    if (context_ != nullptr) boost::asio::post(*context_, std::move(work));
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
  }

 private:
  std::mutex mutex_;
  boost::asio::io_context* context_;
};

// Start -> Adopt any number of sockets -> Drain -> CloseAll -> Join. Everything else happens on the loop's
// thread.
class HttpLoop {
 public:
  explicit HttpLoop(HttpShared& shared);
  ~HttpLoop();
  HttpLoop(const HttpLoop&) = delete;
  HttpLoop& operator=(const HttpLoop&) = delete;

  void Start();
  // Any thread. `probes_only`: the server has as many connections as it may, so this one is for probes.
  void Adopt(boost::asio::ip::tcp::socket socket, bool probes_only);
  // Any thread: closes the connection of this loop that has waited the longest for its client to ask.
  void CrowdOut();
  void Drain();     // any thread: idle connections close, others after their response
  void CloseAll();  // any thread
  void Join();

  [[nodiscard]] boost::asio::io_context& context() { return context_; }
  [[nodiscard]] HttpShared& shared() { return shared_; }
  [[nodiscard]] const std::shared_ptr<LoopGate>& gate() const { return gate_; }
  // "Date: ...\r\n", made once a second.
  [[nodiscard]] const std::string& DateHeader();

 private:
  void Serve(boost::asio::ip::tcp::socket socket, bool probes_only);
  void ArmSweep();
  void Sweep();

  HttpShared& shared_;
  boost::asio::io_context context_{1};
  std::shared_ptr<LoopGate> gate_ = std::make_shared<LoopGate>(context_);
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{context_.get_executor()};
  boost::asio::steady_timer sweep_timer_{context_};
  bool sweeping_ = false;
  bool closing_ = false;
  std::unordered_map<HttpConnection*, std::shared_ptr<HttpConnection>> connections_;
  std::vector<pollfd> polled_;
  std::vector<std::shared_ptr<HttpConnection>> polled_connections_;
  std::time_t date_second_ = 0;
  std::string date_header_;
  std::thread thread_;
};

}  // namespace troupe::gateway
