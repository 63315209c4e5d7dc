#include "gateway/infer_exchange.hpp"

#include <atomic>
#include <charconv>
#include <chrono>
#include <mutex>
#include <optional>

#include "gateway/http_error.hpp"
#include "gateway/http_exchanges.hpp"
#include "gateway/infer_body.hpp"
#include "gateway/infer_response.hpp"
#include "gateway/sequence.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

using SteadyClock = std::chrono::steady_clock;

Time Now() {
  return Time(std::chrono::duration_cast<Duration>(SteadyClock::now().time_since_epoch()));
}

// What a client asks for.
struct InferTarget {
  std::shared_ptr<const FunctionInfo> function;
  std::string version;
  std::string key;      // the client's Idempotency-Key; empty: none
  Sequence sequence{};  // as the header has it
  [[nodiscard]] bool IsWorkflow() const { return function->platform == kWorkflowPlatform; }
};

HttpResponse KeyUsed(std::string_view who) {
  return ErrorResponse(422, Cat("this Idempotency-Key was used for another request, which ", who,
                                ": choose a new key for a new request"));
}

// body -> call -> reply. What lies in shared memory is copied on a thread of its own: between body and call, and
// between call and reply. Everything else is on the connection's thread, or the service's.
class InferExchange final : public HttpExchange, public std::enable_shared_from_this<InferExchange> {
 public:
  InferExchange(InferTarget target, const InferFront& front, SharedClient client,
                std::optional<std::uint64_t> header_length)
      : target_(std::move(target)),
        front_(front),
        body_(target_.function, front.service, std::move(client), header_length),
        claim_(front.idempotency) {}

  Bytes body_limit() const override { return front_.body_limit; }

  absl::StatusOr<std::span<std::byte>> NextSpan(std::uint64_t remaining) override {
    auto span = body_.NextSpan(remaining);
    if (!span.ok()) Observe(HttpCode(span.status()));
    return span;
  }

  void Finish(HttpReply reply) override {
    reply_ = std::move(reply);
    if (absl::Status status = body_.Finish(); !status.ok()) return Refuse(ErrorResponse(status));
    auto sequence = JoinSequences(body_.parsed().call.sequence, target_.sequence);
    if (!sequence.ok()) return Refuse(ErrorResponse(sequence.status()));
    body_.parsed().call.sequence = *std::move(sequence);
    if (body_.copies_outputs() && !target_.key.empty() && !target_.IsWorkflow()) {
      return Refuse(ErrorResponse(
          400,
          "an answer that is kept for an Idempotency-Key cannot write its outputs to shared memory again; "
          "leave out the key, or ask for the outputs in the answer"));
    }
    if (!body_.copies_inputs()) return Start();
    body_.memory().copies().Do([self = shared_from_this()] { self->Start(); });
  }

  void Abandon() override {
    Observe(499);
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    if (claim_.Abandon()) front_.service.Cancel(call_);
  }

 private:
  // The connection's thread, or the one that copies.
  void Start() {
    if (abandoned_) return;
    if (absl::Status status = body_.Fill(); !status.ok()) return Refuse(ErrorResponse(status));
    const std::lock_guard lock(mutex_);
    if (abandoned_) return;
    // A workflow's key names its run, and the cluster manager sees to it that there is one.
    if (!target_.key.empty() && !target_.IsWorkflow() && !First()) return;
    body_.DropText();
    InferCall call = std::move(body_.parsed().call);
    call.function = target_.function->name;
    call.version = target_.version;
    if (target_.IsWorkflow()) call.run_key = target_.key;
    body_.parsed().call.request_id = call.request_id;
    call_ = front_.service.Infer(std::move(call), [self = shared_from_this()](InferResult result) {
      self->Answer(std::move(result));
    });
  }

  // False: this key's request runs already, or has been answered; then that is the answer.
  bool First() {
    using Verdict = IdempotencyTable::Verdict;
    const auto decision = claim_.Begin(
        Cat(target_.function->name, "\n", target_.version, "\n", target_.key), body_.Fingerprint(), Now(),
        [self = shared_from_this()](const IdempotencyTable::AnswerPtr& answer) { self->Replay(answer); });
    if (decision.verdict == Verdict::kRun) return true;
    body_.Drop();
    if (decision.verdict == Verdict::kKept) Replay(decision.answer);
    if (decision.verdict == Verdict::kOtherBody) Send(KeyUsed("this gateway has answered, or is answering"));
    if (decision.verdict == Verdict::kFull) {
      Send(ErrorResponse(absl::ResourceExhaustedError(
          "too many requests with an Idempotency-Key are under way; try again later")));
    }
    return false;
  }

  // What the request held is free when its client hears of it.
  void Refuse(HttpResponse response) {
    body_.Drop();
    Send(std::move(response));
  }

  void Send(HttpResponse response) {
    reply_([self = shared_from_this(), response = std::move(response)]() mutable {
      self->Observe(response.code);
      return std::move(response);
    });
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
    HttpResponse response = InferResponse(target_.function->name, body_.parsed(), std::move(result));
    auto answer = std::make_shared<IdempotencyTable::Answer>();
    answer->code = response.code;
    answer->content_type = response.content_type;
    answer->headers = response.headers;
    answer->body = response.body;
    for (const OutputBuffer& part : response.parts) {
      const auto bytes = part.bytes();
      answer->body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    claim_.Finish(answer, Now());
    Send(std::move(response));
  }

  // On the thread that copies: outputs go to shared memory first, and then the client is told.
  void AnswerShared(InferResult result) {
    if (abandoned_) return;
    HttpResponse response =
        InferResponse(target_.function->name, body_.parsed(), std::move(result), &body_.memory());
    body_.Drop();
    Send(std::move(response));
  }

  // Any thread; the response itself is made on the connection's.
  void Answer(InferResult result) {
    if (claim_.runs()) return AnswerAndKeep(std::move(result));
    if (target_.IsWorkflow() && !target_.key.empty() && absl::IsAlreadyExists(result.status)) {
      return reply_([self = shared_from_this(), status = result.status] {
        self->Observe(422);
        return ErrorResponse(422, Message(status));
      });
    }
    if (result.status.ok() && body_.copies_outputs()) {
      auto held = std::make_shared<InferResult>(std::move(result));
      return body_.memory().copies().Do(
          [self = shared_from_this(), held] { self->AnswerShared(std::move(*held)); });
    }
    reply_([self = shared_from_this(), result = std::move(result)]() mutable {
      HttpResponse response =
          InferResponse(self->target_.function->name, self->body_.parsed(), std::move(result));
      self->Observe(response.code);
      return response;
    });
  }

  void Observe(int code) {
    front_.metrics.Observe(target_.function->name, code, SteadyClock::now() - start_);
  }

  const InferTarget target_;
  const InferFront front_;
  InferBody body_;
  const SteadyClock::time_point start_ = SteadyClock::now();
  HttpReply reply_;
  std::mutex mutex_;  // of what begins on one thread and is abandoned on another
  std::atomic<bool> abandoned_{false};
  IdempotencyClaim claim_;
  CallId call_{};  // guarded by mutex_
};

// Refused before its body is read, but counted as the function's.
HttpResponse Refused(const FunctionInfo& function, RequestMetrics& metrics, const absl::Status& status) {
  HttpResponse response = ErrorResponse(status);
  metrics.Observe(function.name, response.code, Duration::zero());
  return response;
}

}  // namespace

std::shared_ptr<HttpExchange> MakeInferExchange(std::string name, std::string version,
                                                const HttpRequestHead& head, SharedClient client,
                                                const InferFront& front) {
  const std::string_view header_length = head.inference_header_length;
  auto function = front.service.Find(name, version);
  if (!function.ok()) return Ready(ErrorResponse(function.status()));
  std::optional<std::uint64_t> length;
  if (!header_length.empty()) {
    const char* const end = header_length.data() + header_length.size();
    const auto [rest, error] = std::from_chars(header_length.data(), end, length.emplace());
    if (error != std::errc() || rest != end) {
      return Ready(
          Refused(**function, front.metrics,
                  absl::InvalidArgumentError("Inference-Header-Content-Length must be a number of bytes")));
    }
  }
  if (!head.idempotency_key.empty()) {
    if (const auto status = CheckIdempotencyKey(head.idempotency_key); !status.ok())
      return Ready(Refused(**function, front.metrics, status));
  }
  auto sequence = ReadSequenceHeader(head.sequence);
  if (!sequence.ok()) return Ready(Refused(**function, front.metrics, sequence.status()));
  return std::make_shared<InferExchange>(InferTarget{*std::move(function), std::move(version),
                                                     std::string(head.idempotency_key), *std::move(sequence)},
                                         front, std::move(client), length);
}

}  // namespace troupe::gateway
