// HTTP/1.1 server: moves bytes between sockets and an HttpHandler. Keep-alive, pipelining (answers in order),
// chunked request bodies, Expect: 100-continue, limits on everything that a client could make grow.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gateway/http_message.hpp"

namespace troupe::gateway {

struct HttpServerOptions {
  std::string address = "127.0.0.1";                 // an IP address, not a name
  std::uint16_t port = 0;                            // 0: the system chooses; see port()
  std::uint32_t threads = 1;                         // each with connections of its own
  std::uint32_t max_connections = 4096;              // one more gets 503 and is closed
  Bytes max_head = KiB(16);                          // request line and headers: 431
  Bytes max_inflight = GiB(2);                       // bodies of all requests under way: 503 with Retry-After
  Duration idle_timeout = std::chrono::seconds(75);  // between requests
  Duration head_timeout = std::chrono::seconds(10);  // from a head's first byte to its last: 408
  // A body (408), or a response that is not read (closed), may take this long plus its size at `slowest`.
  Duration transfer_timeout = std::chrono::seconds(30);
  BytesPerSecond slowest{64.0 * 1024};
  // How often timeouts and vanished clients are looked for: a client that closes its connection while its
  // request waits is noticed this late (also one that only shuts down its sending side, as nginx does).
  Duration sweep_interval = std::chrono::milliseconds(50);
};

struct HttpServerLoad {
  std::uint64_t connections = 0;
  Bytes inflight;
  std::uint64_t requests = 0;  // since the start
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
