#include "gateway/infer_exchange.hpp"

#include <charconv>
#include <chrono>
#include <optional>

#include "gateway/http_body.hpp"
#include "gateway/http_error.hpp"
#include "gateway/http_exchanges.hpp"
#include "gateway/infer_request.hpp"
#include "gateway/infer_response.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

using SteadyClock = std::chrono::steady_clock;

// json (the first `header_length` bytes, or all) -> raw inputs -> call -> reply
class InferExchange final : public HttpExchange, public std::enable_shared_from_this<InferExchange> {
 public:
  InferExchange(std::shared_ptr<const FunctionInfo> function, std::string version, InferenceService& service,
                RequestMetrics& metrics, Bytes body_limit, std::optional<std::uint64_t> header_length)
      : function_(std::move(function)),
        version_(std::move(version)),
        service_(service),
        metrics_(metrics),
        body_limit_(body_limit),
        header_length_(header_length) {}

  Bytes body_limit() const override { return body_limit_; }

  absl::StatusOr<std::span<std::byte>> NextSpan(std::uint64_t remaining) override {
    if (!begun_) {
      begun_ = true;
      json_left_ = header_length_.value_or(remaining);
      if (json_left_ > remaining) return Failed(HeaderTooLong(remaining));
    }
    if (json_left_ > 0) {
      const auto span = json_.Next(json_left_);
      json_left_ -= span.size();
      return span;
    }
    if (!parsed_) {
      if (absl::Status status = Parse(remaining); !status.ok()) return Failed(std::move(status));
    }
    // The sum of the raw inputs was checked against what remains.
    return parsed_->raw_inputs[next_raw_++].span;
  }

  void Finish(HttpReply reply) override {
    absl::Status status = parsed_ ? absl::OkStatus() : Parse(0);
    if (status.ok()) status = CheckRawInputs(*parsed_);
    if (!status.ok()) {
      Observe(HttpCode(status));
      return reply([status = std::move(status)] { return ErrorResponse(status); });
    }
    json_ = TextBody();
    reply_ = std::move(reply);
    InferCall call = std::move(parsed_->call);
    call.function = function_->name;
    call.version = version_;
    parsed_->call.request_id = call.request_id;
    call_ = service_.Infer(std::move(call), [self = shared_from_this()](InferResult result) {
      self->Answer(std::move(result));
    });
  }

  void Abandon() override {
    Observe(499);
    service_.Cancel(call_);
  }

 private:
  static absl::Status HeaderTooLong(std::uint64_t body) {
    return absl::InvalidArgumentError(
        Cat("Inference-Header-Content-Length is larger than the body of ", body, " bytes"));
  }

  absl::Status Parse(std::uint64_t raw_bytes) {
    const bool raw = header_length_ == std::uint64_t{0};
    auto parsed = raw ? ParseRawRequest(*function_, service_, raw_bytes)
                      : ParseInferRequest(json_.text(), *function_, service_, raw_bytes);
    if (!parsed.ok()) return parsed.status();
    parsed_ = std::move(parsed).value();
    return absl::OkStatus();
  }

  absl::Status Failed(absl::Status status) {
    Observe(HttpCode(status));
    return status;
  }

  // Any thread; the response itself is made on the connection's.
  void Answer(InferResult result) {
    reply_([self = shared_from_this(), result = std::move(result)]() mutable {
      HttpResponse response = InferResponse(self->function_->name, *self->parsed_, std::move(result));
      self->Observe(response.code);
      return response;
    });
  }

  void Observe(int code) { metrics_.Observe(function_->name, code, SteadyClock::now() - start_); }

  std::shared_ptr<const FunctionInfo> function_;
  std::string version_;
  InferenceService& service_;
  RequestMetrics& metrics_;
  Bytes body_limit_;
  std::optional<std::uint64_t> header_length_;
  SteadyClock::time_point start_ = SteadyClock::now();
  bool begun_ = false;
  std::uint64_t json_left_ = 0;
  TextBody json_;
  std::optional<ParsedInfer> parsed_;
  std::size_t next_raw_ = 0;
  HttpReply reply_;
  CallId call_{};
};

// Refused before its body is read, but counted as the function's.
HttpResponse Refused(const FunctionInfo& function, RequestMetrics& metrics, const absl::Status& status) {
  HttpResponse response = ErrorResponse(status);
  metrics.Observe(function.name, response.code, Duration::zero());
  return response;
}

}  // namespace

std::shared_ptr<HttpExchange> MakeInferExchange(std::string name, std::string version,
                                                std::string_view header_length, Bytes body_limit,
                                                InferenceService& service, RequestMetrics& metrics) {
  auto function = service.Find(name, version);
  if (!function.ok()) return Ready(ErrorResponse(function.status()));
  std::optional<std::uint64_t> length;
  if (!header_length.empty()) {
    const char* const end = header_length.data() + header_length.size();
    const auto [rest, error] = std::from_chars(header_length.data(), end, length.emplace());
    if (error != std::errc() || rest != end) {
      return Ready(
          Refused(**function, metrics,
                  absl::InvalidArgumentError("Inference-Header-Content-Length must be a number of bytes")));
    }
  }
  return std::make_shared<InferExchange>(*std::move(function), std::move(version), service, metrics,
                                         body_limit, length);
}

}  // namespace troupe::gateway
