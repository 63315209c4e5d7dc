// One HTTP request and its response as the protocol sees them, and the interface between the server (which
// moves bytes) and the protocol (which gives them meaning). No networking header is needed to implement it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gateway/client_user.hpp"
#include "gateway/tensor_buffer.hpp"

namespace troupe::gateway {

// What of a request's head the protocol looks at. The views are valid during HttpHandler::Begin only.
struct HttpRequestHead {
  std::string_view method;                   // "GET"
  std::string_view target;                   // "/v2/models/digits?x=1", still percent-encoded
  std::string_view inference_header_length;  // empty: no such header
  std::string_view idempotency_key{};        // empty: no such header
  std::string_view sequence{};               // Troupe-Sequence; empty: no such header
  std::string_view authorization{};          // empty: no such header
  std::string_view client{};                 // the address that the connection came from, without its port
  bool is_loopback = true;                   // the client is on this machine
  std::string_view origin{};                 // of the web page that asks; empty: no page does
  std::string_view requested_method{};       // Access-Control-Request-Method; empty: no such header
  std::string_view upload_offset{};          // empty: no such header
  std::string_view upload_complete{};        // empty: no such header
  std::shared_ptr<ClientUser> user{};        // of the connection; null: a test's request
};

struct HttpResponse {
  int code = 200;
  std::string_view content_type = "application/json";  // a literal
  std::string headers;                                 // further header lines, each ending in "\r\n"
  std::string body;
  std::vector<OutputBuffer> parts;  // follow the body; sent from where they lie
  bool close = false;               // end the connection after it
};

// Makes the response on the connection's own thread.
using MakeResponse = absl::AnyInvocable<HttpResponse()>;
// Takes the response from any thread, once. The connection may be gone by then: nothing happens.
using HttpReply = absl::AnyInvocable<void(MakeResponse)>;

// One request under way. Made by HttpHandler::Begin when the head has arrived:
//   Early -> NextSpan until the whole body is placed (or it fails: then the error is the response) -> Finish
//   -> reply
// and Abandon when the client went away before the reply. All on the connection's thread. Shared, because a
// reply that is still to come keeps it.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  // The response, when the head alone decides it: the body is not read then, and nothing else is called.
  virtual std::optional<HttpResponse> Early() { return std::nullopt; }
  // The longest body that is taken; longer ones are refused with 413 before they are read.
  [[nodiscard]] virtual Bytes body_limit() const = 0;
  // Where the next bytes of the body go. `remaining`: bytes of the body not placed yet, never 0. The span
  // before is full. Never an empty span.
  virtual absl::StatusOr<std::span<std::byte>> NextSpan(std::uint64_t remaining) = 0;
  virtual void Finish(HttpReply reply) = 0;
  virtual void Abandon() {}
};

// Outlives the server. Called from the server's threads: when it has more than one, at the same time.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  virtual std::shared_ptr<HttpExchange> Begin(const HttpRequestHead& head) = 0;
  // Header lines of every answer to the request, its refusals too; each ends in "\r\n".
  [[nodiscard]] virtual std::string Headers(const HttpRequestHead& head) const {
    static_cast<void>(head);
    return "";
  }
  // Whether the request only asks how the server is. It is answered when the server has all the connections
  // that it may.
  [[nodiscard]] virtual bool IsProbe(const HttpRequestHead& head) const {
    static_cast<void>(head);
    return false;
  }
};

}  // namespace troupe::gateway
