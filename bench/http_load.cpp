// Load generator for HTTP/1.1 servers: keep-alive connections on one thread and one epoll, so that it takes
// little from the server that shares the machine. Closed loop (each connection sends when it has its answer),
// or open loop at a fixed rate, where latency counts from the moment a request was due: a server that stalls
// cannot hide it.
//   http_load http://127.0.0.1:8000/v2/models/noop/infer --body FILE --connections 8 --seconds 5 [--rate
//   4000]
// An https:// address is asked through TLS; the server's certificate is not checked. Prints one JSON object. Exit 1 when any request failed.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "security/openssl_pointers.hpp"

namespace troupe::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
using SteadyTime = SteadyClock::time_point;

struct LoadOptions {
  std::string url;
  std::string body_file;
  std::string content_type = "application/json";
  std::vector<std::string> headers;
  std::uint32_t connections = 1;
  double seconds = 3;
  double warm_up_seconds = 0.5;
  double rate = 0;  // requests per second over all connections; 0: closed loop
  int expected_code = 200;
};

struct Target {
  sockaddr_in address{};
  std::string request;
  security::ContextPtr tls;  // null: without TLS
};

struct Totals {
  std::vector<std::uint64_t> latencies;  // nanoseconds of the good answers in the measured window
  std::uint64_t failed = 0;              // requests with another code or a lost connection
  std::uint64_t bytes = 0;
  std::uint64_t not_sent = 0;  // open loop: requests that were due, and no connection was free before the end
};

[[noreturn]] void Stop(const std::string& why) {
  std::fprintf(stderr, "http_load: %s\n", why.c_str());
  std::exit(2);
}

Target ReadTarget(const LoadOptions& options) {
  constexpr std::string_view kPlain = "http://", kTls = "https://";
  const bool tls = options.url.starts_with(kTls);
  if (!tls && !options.url.starts_with(kPlain)) Stop("the URL must begin with http:// or https://");
  const std::string rest = options.url.substr(tls ? kTls.size() : kPlain.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const std::string host = rest.substr(0, slash);
  const std::size_t colon = std::min(host.find(':'), host.size());
  Target target;
  if (tls) target.tls.reset(SSL_CTX_new(TLS_client_method()));
  target.address.sin_family = AF_INET;
  const std::string port = colon < host.size() ? host.substr(colon + 1) : tls ? "443" : "80";
  target.address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port.c_str())));
  if (::inet_pton(AF_INET, host.substr(0, colon).c_str(), &target.address.sin_addr) != 1) {
    Stop("the host must be an IPv4 address, got '" + host.substr(0, colon) + "'");
  }
  const std::string path = slash < rest.size() ? rest.substr(slash) : "/";
  std::string body;
  if (!options.body_file.empty()) {
    std::ifstream file(options.body_file, std::ios::binary);
    if (!file) Stop("cannot read " + options.body_file);
    body.assign(std::istreambuf_iterator<char>(file), {});
  }
  target.request =
      (options.body_file.empty() ? "GET " : "POST ") + path + " HTTP/1.1\r\nHost: " + host + "\r\n";
  for (const std::string& header : options.headers) target.request += header + "\r\n";
  if (!options.body_file.empty()) {
    target.request += "Content-Type: " + options.content_type +
                      "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  }
  target.request += "\r\n" + body;
  return target;
}

// A connection is idle -> sending -> receiving -> idle, or lost -> connected anew.
class Connection {
 public:
  Connection(const Target& target, int epoll) : target_(target), epoll_(epoll) { Connect(); }
  ~Connection() { ::close(descriptor_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  [[nodiscard]] bool idle() const { return idle_; }

  void Begin(SteadyTime due) {
    due_ = due;
    idle_ = false;
    sent_ = 0;
    received_.clear();
    expected_ = 0;
    Send();
  }

  // Handles an epoll event: true when the answer is whole, with its code (0: the connection was lost).
  bool Advance(int& code, SteadyTime& due, std::uint64_t& bytes) {
    if (idle_) {
      // A server may close an idle connection.
      Reconnect();
      return false;
    }
    if (sent_ < target_.request.size()) Send();
    due = due_;
    while (true) {
      char piece[65536];
      const ssize_t got = Receive(piece, sizeof(piece));
      if (got == kNothingYet) return false;
      if (got <= 0) {
        code = 0;
        Reconnect();
        return true;
      }
      received_.append(piece, static_cast<std::size_t>(got));
      if (Whole()) break;
    }
    code = std::atoi(received_.c_str() + 9);
    bytes = received_.size();
    idle_ = true;
    if (closes_) Reconnect();
    return true;
  }

 private:
  static constexpr ssize_t kNothingYet = -2;

  void Connect() {
    descriptor_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto* address = reinterpret_cast<const sockaddr*>(&target_.address);
    if (descriptor_ < 0 || ::connect(descriptor_, address, sizeof(target_.address)) != 0) {
      Stop(std::string("cannot connect: ") + std::strerror(errno));
    }
    const int on = 1;
    ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (target_.tls != nullptr) Greet();
    const int flags = ::fcntl(descriptor_, F_GETFL);
    ::fcntl(descriptor_, F_SETFL, flags | O_NONBLOCK);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.ptr = this;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor_, &event);
    idle_ = true;
  }

  // Does the handshake while the socket still blocks.
  void Greet() {
    tls_.reset(SSL_new(target_.tls.get()));
    SSL_set_fd(tls_.get(), descriptor_);
    SSL_set_read_ahead(tls_.get(), 1);
    if (SSL_connect(tls_.get()) != 1) Stop("the TLS handshake failed");
  }

  void Reconnect() {
    ::close(descriptor_);
    Connect();
  }

  // Returns the bytes received, kNothingYet, 0 at the end of the connection, or -1 when it is broken.
  ssize_t Receive(char* to, std::size_t size) {
    if (tls_ == nullptr) {
      const ssize_t got = ::recv(descriptor_, to, size, 0);
      return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? kNothingYet : got;
    }
    const int got = SSL_read(tls_.get(), to, static_cast<int>(size));
    if (got > 0) return got;
    return SSL_get_error(tls_.get(), got) == SSL_ERROR_WANT_READ ? kNothingYet : -1;
  }
  // Returns the bytes sent, kNothingYet when the socket's buffer is full, or -1 when the connection is
  // broken.
  ssize_t Put(const char* from, std::size_t size) {
    if (tls_ == nullptr) {
      const ssize_t put = ::send(descriptor_, from, size, MSG_NOSIGNAL);
      return put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? kNothingYet : put;
    }
    const int put = SSL_write(tls_.get(), from, static_cast<int>(size));
    if (put > 0) return put;
    return SSL_get_error(tls_.get(), put) == SSL_ERROR_WANT_WRITE ? kNothingYet : -1;
  }

  // When a body is larger than the socket's buffer, sending waits for the server.
  void Send() {
    while (sent_ < target_.request.size()) {
      const ssize_t count = Put(target_.request.data() + sent_, target_.request.size() - sent_);
      if (count == kNothingYet) {
        pollfd writable{descriptor_, POLLOUT, 0};
        ::poll(&writable, 1, -1);
        continue;
      }
      if (count < 0) return;
      sent_ += static_cast<std::size_t>(count);
    }
  }

  bool Whole() {
    if (expected_ == 0) {
      const std::size_t end = received_.find("\r\n\r\n");
      if (end == std::string::npos) return false;
      const std::string_view head = std::string_view(received_).substr(0, end);
      std::size_t length = 0;
      if (const std::size_t at = head.find("Content-Length: "); at != std::string_view::npos) {
        std::from_chars(head.data() + at + 16, head.data() + head.size(), length);
      }
      closes_ = head.find("Connection: close") != std::string_view::npos;
      expected_ = end + 4 + length;
    }
    return received_.size() >= expected_;
  }

  const Target& target_;
  int epoll_;
  int descriptor_ = -1;
  security::SslPtr tls_;  // null: without TLS
  bool idle_ = true;
  bool closes_ = false;
  std::size_t sent_ = 0;
  std::size_t expected_ = 0;  // the length of the whole answer; 0: not known yet
  std::string received_;
  SteadyTime due_;
};

class Load {
 public:
  Load(const LoadOptions& options, const Target& target)
      : options_(options), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    for (std::uint32_t i = 0; i < options.connections; ++i) {
      connections_.push_back(std::make_unique<Connection>(target, epoll_));
    }
  }
  ~Load() {
    connections_.clear();
    ::close(epoll_);
  }

  Totals Run() {
    begin_ = SteadyClock::now();
    measured_ = begin_ + FromSeconds(options_.warm_up_seconds);
    end_ = measured_ + FromSeconds(options_.seconds);
    next_due_ = begin_;
    Start(begin_);
    // Answers that are still to come after the end have time to come: a server that is offered too much has a long queue.
    const SteadyTime last = end_ + std::chrono::seconds(15);
    for (SteadyTime now = begin_; now < last && (now < end_ || Busy()); now = SteadyClock::now()) {
      Wait(now, last);
      Start(SteadyClock::now());
    }
    if (options_.rate > 0) totals_.not_sent = waiting_.size();
    if (Busy()) totals_.failed += static_cast<std::uint64_t>(busy_);
    return std::move(totals_);
  }

 private:
  [[nodiscard]] bool Busy() const { return busy_ > 0; }

  void Start(SteadyTime now) {
    if (options_.rate > 0) {
      const auto gap = FromSeconds(1 / options_.rate);
      for (; next_due_ <= now && next_due_ < end_; next_due_ += gap) waiting_.push_back(next_due_);
    }
    for (const auto& connection : connections_) {
      if (!connection->idle()) continue;
      SteadyTime due = now;
      if (options_.rate > 0) {
        if (waiting_.empty()) return;
        due = waiting_.front();
        waiting_.pop_front();
      } else if (now >= end_) {
        return;
      }
      ++busy_;
      connection->Begin(due);
    }
  }

  void Wait(SteadyTime now, SteadyTime last) {
    SteadyTime until = now < end_ ? end_ : last;
    if (options_.rate > 0 && next_due_ < end_) until = std::min(until, next_due_);
    const auto left = std::max(Duration::zero(), std::chrono::duration_cast<Duration>(until - now));
    const timespec timeout{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    epoll_event events[64];
    const int count = ::epoll_pwait2(epoll_, events, 64, &timeout, nullptr);
    for (int i = 0; i < count; ++i) Advance(*static_cast<Connection*>(events[i].data.ptr));
  }

  void Advance(Connection& connection) {
    int code = 0;
    SteadyTime due;
    std::uint64_t bytes = 0;
    if (!connection.Advance(code, due, bytes)) return;
    --busy_;
    const SteadyTime now = SteadyClock::now();
    // In a closed loop an answer counts when it comes in the measured time, whenever its request was sent: each
    // connection waits for an answer when that time begins, and for another one when it ends.
    if (code != options_.expected_code) {
      ++totals_.failed;
    } else if ((options_.rate > 0 ? due : now) >= measured_ && now < end_) {
      totals_.latencies.push_back(static_cast<std::uint64_t>((now - due).count()));
      totals_.bytes += bytes;
    }
  }

  const LoadOptions& options_;
  int epoll_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::deque<SteadyTime> waiting_;  // due times of requests for which no connection was free
  SteadyTime begin_;
  SteadyTime measured_;
  SteadyTime end_;
  SteadyTime next_due_;
  std::int64_t busy_ = 0;
  Totals totals_;
};

double Microseconds(const std::vector<std::uint64_t>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto at = static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5);
  return static_cast<double>(sorted[at]) / 1e3;
}

void Print(const LoadOptions& options, Totals totals) {
  std::sort(totals.latencies.begin(), totals.latencies.end());
  double sum = 0;
  for (const std::uint64_t one : totals.latencies) sum += static_cast<double>(one) / 1e3;
  const auto count = static_cast<double>(totals.latencies.size());
  std::printf(
      "{\"url\":\"%s\",\"connections\":%u,\"rate\":%g,\"seconds\":%g,\"requests\":%zu,\"failed\":%llu,\"not_"
      "sent\":%llu,"
      "\"requests_per_second\":%.1f,\"megabytes_per_second\":%.3f,\"latency_us\":{\"mean\":%.2f,\"p50\":%.2f,"
      "\"p90\":%.2f,\"p98\":%.2f,\"p99\":%.2f,\"p999\":%.2f,\"max\":%.2f}}\n",
      options.url.c_str(), options.connections, options.rate, options.seconds, totals.latencies.size(),
      static_cast<unsigned long long>(totals.failed), static_cast<unsigned long long>(totals.not_sent),
      count / options.seconds, static_cast<double>(totals.bytes) / options.seconds / 1e6,
      count > 0 ? sum / count : 0, Microseconds(totals.latencies, 0.5), Microseconds(totals.latencies, 0.9),
      Microseconds(totals.latencies, 0.98), Microseconds(totals.latencies, 0.99),
      Microseconds(totals.latencies, 0.999), Microseconds(totals.latencies, 1));
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  troupe::bench::LoadOptions options;
  CLI::App app("Load generator for HTTP/1.1 servers");
  app.add_option("url", options.url, "http(s)://ADDRESS:PORT/PATH")->required();
  app.add_option("--body", options.body_file, "file to POST; without it, GET");
  app.add_option("--content-type", options.content_type, "of the body");
  app.add_option("--header", options.headers, "further header line, may be repeated");
  app.add_option("--connections", options.connections, "keep-alive connections")->check(CLI::Range(1, 10000));
  app.add_option("--seconds", options.seconds, "measured time")->check(CLI::Range(0.01, 3600.0));
  app.add_option("--warm-up", options.warm_up_seconds, "time before it, seconds")
      ->check(CLI::Range(0.0, 600.0));
  app.add_option("--rate", options.rate, "open loop: requests per second in all")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--expect", options.expected_code, "HTTP code of a good answer");
  CLI11_PARSE(app, argc, argv);
  const troupe::bench::Target target = troupe::bench::ReadTarget(options);
  troupe::bench::Totals totals = troupe::bench::Load(options, target).Run();
  const bool failed = totals.failed > 0 || totals.latencies.empty();
  troupe::bench::Print(options, std::move(totals));
  return failed ? 1 : 0;
}
