// CORS: which web pages a browser lets read the gateway's answers (the Fetch standard, 'HTTP extensions'). A
// page's origin is 'https://host[:port]'. CORS authenticates no caller: pages send API keys as every client
// does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "gateway/http_message.hpp"

namespace troupe::gateway {

// OK for '*' alone, or origins as browsers write them: scheme, host and port, without a path.
[[nodiscard]] absl::Status CheckCorsOrigins(const std::vector<std::string>& origins);

class Cors {
 public:
  // `origins`: as CheckCorsOrigins takes them; none: pages of other origins read nothing.
  explicit Cors(const std::vector<std::string>& origins);

  [[nodiscard]] bool Allows(std::string_view origin) const;
  // Whether a browser asks, before a page's request, if the page may make it. It sends no key along.
  [[nodiscard]] bool IsPreflight(const HttpRequestHead& head) const;
  // `methods`: the methods of the path ("GET, HEAD"); empty for a path that does not exist.
  [[nodiscard]] static HttpResponse Preflight(std::string_view methods);
  // Header lines of every answer to `head`. Never that credentials are allowed: browsers keep none for this
  // server, and a page that has a key sends it by itself.
  [[nodiscard]] std::string Headers(const HttpRequestHead& head) const;

 private:
  std::vector<std::string> origins_;
  bool any_ = false;
};

}  // namespace troupe::gateway
