#include "gateway/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <mutex>

namespace troupe::gateway {

namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;

const prometheus::Histogram::BucketBoundaries& Buckets() {
  static const prometheus::Histogram::BucketBoundaries buckets = {
      0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};
  return buckets;
}

}  // namespace

struct RequestMetrics::Series {
  struct OfFunction {
    std::map<int, prometheus::Counter*> requests;  // by code
    prometheus::Counter* errors = nullptr;
    prometheus::Histogram* seconds = nullptr;
  };

  explicit Series(std::shared_ptr<prometheus::Registry> r)
      : registry(std::move(r)),
        requests(BuildCounter()
                     .Name("troupe_requests_total")
                     .Help("Inference requests answered")
                     .Register(*registry)),
        errors(BuildCounter()
                   .Name("troupe_request_errors_total")
                   .Help("Inference requests answered with a code of 400 or more")
                   .Register(*registry)),
        seconds(BuildHistogram()
                    .Name("troupe_request_seconds")
                    .Help("From a request's head to its response")
                    .Register(*registry)),
        connections(BuildGauge()
                        .Name("troupe_http_connections")
                        .Help("Open connections")
                        .Register(*registry)
                        .Add({})),
        inflight(BuildGauge()
                     .Name("troupe_http_inflight_bytes")
                     .Help("Bodies of the requests under way, as far as they have arrived")
                     .Register(*registry)
                     .Add({})),
        answers(BuildGauge()
                    .Name("troupe_http_answer_bytes")
                    .Help("Answers that wait for clients to read them")
                    .Register(*registry)
                    .Add({})),
        http_requests(BuildCounter()
                          .Name("troupe_http_requests_total")
                          .Help("HTTP requests of every kind")
                          .Register(*registry)
                          .Add({})),
        handshakes(BuildCounter()
                       .Name("troupe_https_handshakes_total")
                       .Help("TLS handshakes of HTTP clients that have ended well")
                       .Register(*registry)
                       .Add({})),
        regions(BuildGauge()
                    .Name("troupe_shared_memory_regions")
                    .Help("Regions of clients' shared memory that are registered")
                    .Register(*registry)
                    .Add({})),
        region_bytes(BuildGauge()
                         .Name("troupe_shared_memory_region_bytes")
                         .Help("Bytes of the regions of clients' shared memory that are registered")
                         .Register(*registry)
                         .Add({})),
        copied(BuildCounter()
                   .Name("troupe_shared_memory_copied_bytes_total")
                   .Help("Bytes of tensors that were copied from (in) and to (out) clients' shared memory")
                   .Register(*registry)),
        copied_in(copied.Add({{"direction", "in"}})),
        copied_out(copied.Add({{"direction", "out"}})),
        refused_tls(BuildCounter()
                        .Name("troupe_https_refused_total")
                        .Help("Connections that were closed before their TLS handshake had ended, by reason")
                        .Register(*registry)) {
    for (std::size_t i = 0; i < kTlsRefusals; ++i)
      refused[i] = &refused_tls.Add({{"reason", std::string(TlsRefusalName(static_cast<TlsRefusal>(i)))}});
  }

  static void Raise(prometheus::Counter& counter, std::uint64_t to) {
    const double more = static_cast<double>(to) - counter.Value();
    if (more > 0) counter.Increment(more);
  }

  OfFunction& Of(std::string_view function) {
    const auto found = functions.find(function);
    if (found != functions.end()) return found->second;
    OfFunction fresh;
    const prometheus::Labels labels = {{"function", std::string(function)}};
    fresh.errors = &errors.Add(labels);
    fresh.seconds = &seconds.Add(labels, Buckets());
    return functions.emplace(function, std::move(fresh)).first->second;
  }

  void Remove(OfFunction& gone) {
    for (const auto& [code, counter] : gone.requests) requests.Remove(counter);
    errors.Remove(gone.errors);
    seconds.Remove(gone.seconds);
  }

  std::shared_ptr<prometheus::Registry> registry;
  prometheus::Family<prometheus::Counter>& requests;
  prometheus::Family<prometheus::Counter>& errors;
  prometheus::Family<prometheus::Histogram>& seconds;
  prometheus::Gauge& connections;
  prometheus::Gauge& inflight;
  prometheus::Gauge& answers;
  prometheus::Counter& http_requests;
  prometheus::Counter& handshakes;
  prometheus::Gauge& regions;
  prometheus::Gauge& region_bytes;
  prometheus::Family<prometheus::Counter>& copied;
  prometheus::Counter& copied_in;
  prometheus::Counter& copied_out;
  prometheus::Family<prometheus::Counter>& refused_tls;
  std::array<prometheus::Counter*, kTlsRefusals> refused{};
  std::mutex mutex;
  std::map<std::string, OfFunction, std::less<>> functions;
};

RequestMetrics::RequestMetrics(std::shared_ptr<prometheus::Registry> registry)
    : series_(std::make_unique<Series>(std::move(registry))) {}
RequestMetrics::~RequestMetrics() = default;

void RequestMetrics::Observe(std::string_view function, int code, Duration latency) {
  const std::lock_guard lock(series_->mutex);
  Series::OfFunction& of = series_->Of(function);
  prometheus::Counter*& counter = of.requests[code];
  if (counter == nullptr) {
    counter = &series_->requests.Add({{"function", std::string(function)}, {"code", std::to_string(code)}});
  }
  counter->Increment();
  if (code >= 400) of.errors->Increment();
  of.seconds->Observe(ToSeconds(latency));
}

void RequestMetrics::SetServerLoad(const HttpServerLoad& load) {
  const std::lock_guard lock(series_->mutex);
  series_->connections.Set(static_cast<double>(load.connections));
  series_->inflight.Set(static_cast<double>(load.inflight.count()));
  series_->answers.Set(static_cast<double>(load.answers.count()));
  Series::Raise(series_->http_requests, load.requests);
  Series::Raise(series_->handshakes, load.handshakes);
  for (std::size_t i = 0; i < kTlsRefusals; ++i) Series::Raise(*series_->refused[i], load.refused_tls[i]);
}

void RequestMetrics::SetSharedMemory(const SharedMemoryLoad& load) {
  const std::lock_guard lock(series_->mutex);
  series_->regions.Set(static_cast<double>(load.regions));
  series_->region_bytes.Set(static_cast<double>(load.bytes.count()));
  Series::Raise(series_->copied_in, load.copied_in);
  Series::Raise(series_->copied_out, load.copied_out);
}

void RequestMetrics::Retain(const std::set<std::string>& functions) {
  const std::lock_guard lock(series_->mutex);
  for (auto it = series_->functions.begin(); it != series_->functions.end();) {
    if (functions.contains(it->first)) {
      ++it;
    } else {
      series_->Remove(it->second);
      it = series_->functions.erase(it);
    }
  }
}

std::string PrometheusText(const prometheus::Registry& registry) {
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

}  // namespace troupe::gateway
