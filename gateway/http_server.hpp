// HTTP/1.1 server: moves bytes between sockets and an HttpHandler. Keep-alive, pipelining (answers in order),
// chunked request bodies, Expect: 100-continue, limits on everything that a client could make grow.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gateway/http_message.hpp"
#include "gateway/tls_refusals.hpp"

namespace troupe::security {
class ServerCertificate;
}

namespace troupe::gateway {

struct HttpServerOptions {
  std::string address = "127.0.0.1";     // an IP address, not a name
  std::uint16_t port = 0;                // 0: the system chooses; see port()
  std::uint32_t threads = 1;             // each with connections of its own
  std::uint32_t max_connections = 4096;  // requests on further ones get 503, but for probes
  std::uint32_t probe_connections = 64;  // so many further ones; one more gets 503 and is closed
  // Beyond max_connections the connection that has waited longest for its client to ask is closed, and the
  // new connection is served as the others are.
  bool crowd_out = false;
  Bytes max_head = KiB(16);  // request line and headers: 431
  // Bodies of all requests under way, as far as they have arrived: 503 with Retry-After beyond. One client
  // address may hold a part of it.
  Bytes max_inflight = GiB(3);
  Bytes max_inflight_client = GiB(2);
  // Answers that wait for clients to read them: a request beyond gets 503 with Retry-After, too.
  Bytes max_answers = GiB(1);
  Bytes max_answers_client = MiB(512);
  Duration idle_timeout = std::chrono::seconds(75);  // between requests
  Duration head_timeout = std::chrono::seconds(10);  // from a head's first byte to its last: 408
  // A body (408), or an answer that is not read (closed), may take this long plus what has been moved so far
  // at `slowest`. While the memory for it is short it may take `short_transfer_timeout` plus that.
  Duration transfer_timeout = std::chrono::seconds(30);
  Duration short_transfer_timeout = std::chrono::seconds(1);
  BytesPerSecond slowest{64.0 * 1024};
  // With one the port speaks HTTPS only; null: plain HTTP only. Handshakes are bounded in time and number (of
  // all clients, and of one client address): a connection beyond is closed. For a second after that a
  // handshake may take `short_transfer_timeout` only.
  std::shared_ptr<const security::ServerCertificate> certificate;
  Duration handshake_timeout = std::chrono::seconds(5);
  std::uint32_t max_handshakes = 1024;
  std::uint32_t max_handshakes_client = 256;
  // How often timeouts and vanished clients are looked for. A client that closes its connection while its
  // request waits is noticed this late, and so is a client that only shuts down its sending side, as nginx
  // does.
  Duration sweep_interval = std::chrono::milliseconds(50);
};

// Connections that were closed, or requests that were refused before they were whole.
struct HttpRefusals {
  std::uint64_t crowded_out = 0;
  std::uint64_t slow = 0;    // a request that did not come in time, an answer that was not read
  std::uint64_t broken = 0;  // not an HTTP request
};

struct HttpServerLoad {
  std::uint64_t connections = 0;
  Bytes inflight;                     // of bodies
  Bytes answers;                      // that wait for their readers
  std::uint64_t requests = 0;         // since the start
  HttpRefusals refused;               // since the start
  std::uint64_t handshakes = 0;       // that have ended well, since the start
  TlsRefusals::Counts refused_tls{};  // since the start
};

// started -> (serving) -> stopped, once. Made and stopped by the daemon's main; owns its threads.
class HttpServer {
 public:
  // kAlreadyExists when the port is in use; kInvalidArgument for an address that is none. The handler
  // outlives the server.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           HttpHandler& handler);
  virtual ~HttpServer() = default;  // Stop(0)

  [[nodiscard]] virtual std::uint16_t port() const = 0;
  [[nodiscard]] virtual HttpServerLoad load() const = 0;
  // Takes no more connections, lets requests under way finish for at most `grace`, then abandons them.
  // Returns when every thread has ended. A second call does nothing. Not from one of the server's own
  // threads.
  virtual void Stop(Duration grace) = 0;
};

}  // namespace troupe::gateway
