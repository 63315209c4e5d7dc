// What the front measures of itself, in the daemon's Prometheus registry (others add theirs to the same one):
//   troupe_requests_total{function,code}      inference requests answered, by HTTP code
//   troupe_request_errors_total{function}     those with a code of 400 or more
//   troupe_request_seconds{function}          from the head's arrival to the response, histogram
//   troupe_http_connections, troupe_http_inflight_bytes, troupe_http_answer_bytes, troupe_http_requests_total
//   troupe_shared_memory_regions, troupe_shared_memory_region_bytes, troupe_shared_memory_copied_bytes_total{direction}
//   troupe_https_handshakes_total, troupe_https_refused_total{reason}
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "base/units.hpp"
#include "gateway/http_server.hpp"
#include "gateway/shared_memory.hpp"

namespace prometheus {
class Registry;
}

namespace troupe::gateway {

// Thread-safe. Only functions that exist become labels: a client cannot make series.
class RequestMetrics {
 public:
  explicit RequestMetrics(std::shared_ptr<prometheus::Registry> registry);
  ~RequestMetrics();

  void Observe(std::string_view function, int code, Duration latency);
  void SetServerLoad(const HttpServerLoad& load);
  void SetSharedMemory(const SharedMemoryLoad& load);
  // Drops the series of functions that are no more.
  void Retain(const std::set<std::string>& functions);

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

// The whole registry in Prometheus's text format.
[[nodiscard]] std::string PrometheusText(const prometheus::Registry& registry);
inline constexpr char kPrometheusContentType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace troupe::gateway
