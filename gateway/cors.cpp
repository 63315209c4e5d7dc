#include "gateway/cors.hpp"

#include <algorithm>

#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

constexpr std::string_view kAnyOrigin = "*";

bool IsOrigin(std::string_view text) {
  const auto scheme = text.find("://");
  if (scheme == std::string_view::npos || scheme == 0) return false;
  const auto host = text.substr(scheme + 3);
  constexpr std::string_view kHost = "abcdefghijklmnopqrstuvwxyz0123456789.-:[]_";
  return !host.empty() && host.find_first_not_of(kHost) == std::string_view::npos &&
         text.substr(0, scheme).find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+-.") ==
             std::string_view::npos;
}

}  // namespace

absl::Status CheckCorsOrigins(const std::vector<std::string>& origins) {
  for (const auto& origin : origins) {
    if (origin == kAnyOrigin && origins.size() == 1) continue;
    if (IsOrigin(origin)) continue;
    return absl::InvalidArgumentError(Cat(
        "found '", origin, "', expected origins such as https://app.example or http://localhost:3000 (small ",
        "letters, no path, with commas between them), or * alone"));
  }
  return absl::OkStatus();
}

Cors::Cors(const std::vector<std::string>& origins)
    : origins_(origins), any_(origins.size() == 1 && origins.front() == kAnyOrigin) {}

bool Cors::Allows(std::string_view origin) const {
  return any_ || std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

bool Cors::IsPreflight(const HttpRequestHead& head) const {
  return !origins_.empty() && head.method == "OPTIONS" && !head.origin.empty() &&
         !head.requested_method.empty();
}

HttpResponse Cors::Preflight(std::string_view methods) {
  HttpResponse response;
  response.code = 204;
  if (methods.empty()) return response;
  response.headers = Cat(
      "Access-Control-Allow-Methods: ", methods,
      "\r\nAccess-Control-Allow-Headers: Authorization, Content-Type, Content-Encoding, Idempotency-Key, "
      "Inference-Header-Content-Length, Troupe-Sequence, Upload-Offset, Upload-Complete\r\nAccess-Control-Max-Age: 600\r\n");
  return response;
}

std::string Cors::Headers(const HttpRequestHead& head) const {
  if (origins_.empty()) return "";
  // A cache on the way must not give one origin's answer to another one.
  std::string lines = any_ ? "" : "Vary: Origin\r\n";
  if (head.origin.empty() || !Allows(head.origin)) return lines;
  Append(lines, "Access-Control-Allow-Origin: ", any_ ? kAnyOrigin : head.origin,
         "\r\nAccess-Control-Expose-Headers: Inference-Header-Content-Length, Retry-After, "
         "Idempotent-Replayed, Upload-Offset, Upload-Complete, Upload-Limit\r\n");
  return lines;
}

}  // namespace troupe::gateway
