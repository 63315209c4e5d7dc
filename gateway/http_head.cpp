#include "gateway/http_head.hpp"

#include <boost/beast/core/string.hpp>

#include "gateway/http_error.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace http = boost::beast::http;

bool IsFolded(std::string_view head) {
  for (auto end = head.find('\n'); end != std::string_view::npos; end = head.find('\n', end + 1))
    if (end + 1 < head.size() && (head[end + 1] == ' ' || head[end + 1] == '\t')) return true;
  return false;
}

std::optional<HttpResponse> CheckFields(const HttpHead& head) {
  if (head.version() != 10 && head.version() != 11) {
    return ErrorResponse(400, "HTTP/1.0 or HTTP/1.1 expected");
  }
  const auto hosts = head.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && head.version() == 11)) {
    return ErrorResponse(400,
                         Cat("an HTTP/1.1 request has exactly one Host header, and this one has ", hosts));
  }
  for (const auto field : {http::field::authorization, http::field::content_encoding, http::field::origin}) {
    if (head.count(field) < 2) continue;
    return ErrorResponse(400, Cat("the request has more than one header ", http::to_string(field)));
  }
  for (const char* field : {"Inference-Header-Content-Length", "Idempotency-Key", "Troupe-Sequence",
                            "Upload-Offset", "Upload-Complete"}) {
    if (head.count(field) < 2) continue;
    return ErrorResponse(400, Cat("the request has more than one header ", field));
  }
  // Another server on the way might read such a body otherwise, and take a part of it for the next request.
  const auto coding = head.find(http::field::transfer_encoding);
  if (coding != head.end() && (head.version() != 11 || head.count(http::field::transfer_encoding) > 1 ||
                               !boost::beast::iequals(coding->value(), "chunked"))) {
    HttpResponse refusal =
        ErrorResponse(501, "Transfer-Encoding may be 'chunked' and nothing else, once, in HTTP/1.1");
    refusal.close = true;
    return refusal;
  }
  return std::nullopt;
}

HttpRequestHead ViewOf(const HttpHead& head, std::string_view client, bool is_loopback) {
  const auto view = [](boost::beast::string_view text) { return std::string_view(text.data(), text.size()); };
  return {view(head.method_string()),
          view(head.target()),
          view(head["Inference-Header-Content-Length"]),
          view(head["Idempotency-Key"]),
          view(head["Troupe-Sequence"]),
          view(head[http::field::authorization]),
          client,
          is_loopback,
          view(head[http::field::origin]),
          view(head[http::field::access_control_request_method]),
          view(head["Upload-Offset"]),
          view(head["Upload-Complete"])};
}

}  // namespace troupe::gateway
