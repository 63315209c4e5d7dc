#include "gateway/infer_exchange.hpp"

#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>

#include "base/digest.hpp"
#include "gateway/http_body.hpp"
#include "gateway/http_error.hpp"
#include "gateway/http_exchanges.hpp"
#include "gateway/infer_request.hpp"
#include "gateway/infer_response.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::uint64_t kGatheredFrom = 64 * 1024;

Time Now() {
  return Time(std::chrono::duration_cast<Duration>(SteadyClock::now().time_since_epoch()));
}

// json (the first `header_length` bytes, or all) -> raw inputs -> call -> reply
class InferExchange final : public HttpExchange, public std::enable_shared_from_this<InferExchange> {
 public:
  InferExchange(std::shared_ptr<const FunctionInfo> function, std::string version, std::string key,
                InferenceService& service, RequestMetrics& metrics, IdempotencyTable& idempotency,
                Bytes body_limit, std::optional<std::uint64_t> header_length)
      : function_(std::move(function)),
        version_(std::move(version)),
        key_(std::move(key)),
        service_(service),
        metrics_(metrics),
        idempotency_(idempotency),
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
    if (gather_left_ > 0) {
      const auto span = gathered_.Next(gather_left_);
      gather_left_ -= span.size();
      return span;
    }
    if (!parsed_) {
      if (gathered_.text().empty() && remaining > kGatheredFrom) {
        gather_left_ = remaining / 2;
        return NextSpan(remaining);
      }
      if (absl::Status status = Parse(gathered_.text().size() + remaining); !status.ok())
        return Failed(std::move(status));
      PlaceGathered();
    }
    // The sum of the raw inputs was checked against what remains.
    const auto span = parsed_->raw_inputs[next_raw_].span.subspan(raw_placed_);
    ++next_raw_;
    raw_placed_ = 0;
    return span;
  }

  void Finish(HttpReply reply) override {
    absl::Status status = parsed_ ? absl::OkStatus() : Parse(0);
    if (status.ok()) status = CheckRawInputs(*parsed_);
    if (!status.ok()) {
      Observe(HttpCode(status));
      return reply([status = std::move(status)] { return ErrorResponse(status); });
    }
    reply_ = std::move(reply);
    // A workflow's key names its run, and the cluster manager sees to it that there is one.
    if (!key_.empty() && !IsWorkflow() && !First()) return;
    json_.Drop();
    InferCall call = std::move(parsed_->call);
    call.function = function_->name;
    call.version = version_;
    if (IsWorkflow()) call.run_key = key_;
    parsed_->call.request_id = call.request_id;
    call_ = service_.Infer(std::move(call), [self = shared_from_this()](InferResult result) {
      self->Answer(std::move(result));
    });
  }

  void Abandon() override {
    Observe(499);
    if (waits_) return idempotency_.Leave(table_key_, waiter_);
    if (run_ != 0 && !idempotency_.Abandon(table_key_, run_)) return;
    service_.Cancel(call_);
  }

 private:
  // What was gathered goes to the beginning of the raw inputs' places.
  void PlaceGathered() {
    std::string_view rest = gathered_.text();
    while (!rest.empty()) {
      const auto span = parsed_->raw_inputs[next_raw_].span.subspan(raw_placed_);
      const std::size_t count = std::min(span.size(), rest.size());
      std::memcpy(span.data(), rest.data(), count);
      rest.remove_prefix(count);
      raw_placed_ += count;
      if (count < span.size()) break;
      ++next_raw_;
      raw_placed_ = 0;
    }
    gathered_.Drop();
  }

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

  [[nodiscard]] bool IsWorkflow() const { return function_->platform == kWorkflowPlatform; }

  [[nodiscard]] std::string Fingerprint() const {
    Sha256 digest;
    digest.Update(Cat(json_.text().size(), "\n"));
    digest.Update(json_.text());
    for (const RawInput& raw : parsed_->raw_inputs) digest.Update(std::span<const std::byte>(raw.span));
    return digest.Finish();
  }

  // False: this key's request runs already, or has been answered; then that is the answer.
  bool First() {
    using Verdict = IdempotencyTable::Verdict;
    table_key_ = Cat(function_->name, "\n", version_, "\n", key_);
    waits_ = true;
    const auto decision = idempotency_.Begin(
        table_key_, Fingerprint(), Now(),
        [self = shared_from_this()](const IdempotencyTable::AnswerPtr& answer) { self->Replay(answer); });
    waits_ = decision.verdict != Verdict::kRun;
    if (decision.verdict == Verdict::kRun) run_ = decision.run;
    if (decision.verdict == Verdict::kKept) Replay(decision.answer);
    if (decision.verdict == Verdict::kOtherBody)
      Refuse(KeyUsed("this gateway has answered, or is answering"));
    if (decision.verdict == Verdict::kFull) {
      Refuse(ErrorResponse(absl::ResourceExhaustedError(
          "too many requests with an Idempotency-Key are under way; try again later")));
    }
    if (!waits_) return true;
    waiter_ = decision.waiter;
    json_.Drop();
    parsed_.reset();  // and with it the places of its inputs
    return false;
  }

  static HttpResponse KeyUsed(std::string_view who) {
    return ErrorResponse(422, Cat("this Idempotency-Key was used for another request, which ", who,
                                  ": choose a new key for a new request"));
  }

  void Refuse(HttpResponse response) {
    Observe(response.code);
    ReplyWith(reply_, std::move(response));
  }

  // The same bytes as the first one's, on the connection's thread.
  void Replay(const IdempotencyTable::AnswerPtr& answer) {
    reply_([self = shared_from_this(), answer]() {
      HttpResponse response;
      response.code = answer->code;
      response.content_type = answer->content_type;
      response.headers = Cat(answer->headers, "Idempotent-Replayed: true\r\n");
      response.body = answer->body;
      self->Observe(response.code);
      return response;
    });
  }

  // Made here, whether or not its client is still there: others may wait for it.
  void AnswerAndKeep(InferResult result) {
    HttpResponse response = InferResponse(function_->name, *parsed_, std::move(result));
    auto answer = std::make_shared<IdempotencyTable::Answer>();
    answer->code = response.code;
    answer->content_type = response.content_type;
    answer->headers = response.headers;
    answer->body = response.body;
    for (const OutputBuffer& part : response.parts) {
      const auto bytes = part.bytes();
      answer->body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    idempotency_.Finish(table_key_, run_, answer, Now());
    reply_([self = shared_from_this(), response = std::move(response)]() mutable {
      self->Observe(response.code);
      return std::move(response);
    });
  }

  // Any thread; the response itself is made on the connection's.
  void Answer(InferResult result) {
    if (run_ != 0) return AnswerAndKeep(std::move(result));
    if (IsWorkflow() && !key_.empty() && absl::IsAlreadyExists(result.status)) {
      return reply_([self = shared_from_this(), status = result.status] {
        self->Observe(422);
        return ErrorResponse(422, Message(status));
      });
    }
    reply_([self = shared_from_this(), result = std::move(result)]() mutable {
      HttpResponse response = InferResponse(self->function_->name, *self->parsed_, std::move(result));
      self->Observe(response.code);
      return response;
    });
  }

  void Observe(int code) { metrics_.Observe(function_->name, code, SteadyClock::now() - start_); }

  std::shared_ptr<const FunctionInfo> function_;
  std::string version_;
  std::string key_;           // the client's Idempotency-Key; empty: none
  std::string table_key_;     // under which it is in the table
  std::uint64_t run_ = 0;     // in the table; 0: not there
  bool waits_ = false;        // for the answer of another request with the same key
  std::uint64_t waiter_ = 0;  // as which it waits in the table; 0: it does not
  InferenceService& service_;
  RequestMetrics& metrics_;
  IdempotencyTable& idempotency_;
  Bytes body_limit_;
  std::optional<std::uint64_t> header_length_;
  SteadyClock::time_point start_ = SteadyClock::now();
  bool begun_ = false;
  std::uint64_t json_left_ = 0;
  TextBody json_;
  std::optional<ParsedInfer> parsed_;
  // Raw inputs beyond kGatheredFrom wait in memory of their own until half of them has arrived. Only then are
  // places taken for all of them, so that a client never holds more of the arena than twice what it has sent.
  TextBody gathered_;
  std::uint64_t gather_left_ = 0;
  std::size_t next_raw_ = 0;    // the raw input whose bytes come next
  std::size_t raw_placed_ = 0;  // of its bytes are in place
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
                                                const HttpRequestHead& head, Bytes body_limit,
                                                InferenceService& service, RequestMetrics& metrics,
                                                IdempotencyTable& idempotency) {
  const std::string_view header_length = head.inference_header_length;
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
  if (!head.idempotency_key.empty()) {
    if (const auto status = CheckIdempotencyKey(head.idempotency_key); !status.ok())
      return Ready(Refused(**function, metrics, status));
  }
  return std::make_shared<InferExchange>(*std::move(function), std::move(version),
                                         std::string(head.idempotency_key), service, metrics, idempotency,
                                         body_limit, length);
}

}  // namespace troupe::gateway
