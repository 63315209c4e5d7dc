// The two simple kinds of exchange. (Inference has its own: infer_exchange.hpp.)
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "gateway/http_body.hpp"
#include "gateway/http_message.hpp"

namespace troupe::gateway {

// The head alone decides the response.
class ReadyExchange final : public HttpExchange {
 public:
  explicit ReadyExchange(HttpResponse response) : response_(std::move(response)) {}
  std::optional<HttpResponse> Early() override { return std::move(response_); }
  [[nodiscard]] Bytes body_limit() const override { return Bytes(0); }
  absl::StatusOr<std::span<std::byte>> NextSpan(std::uint64_t) override {
    return absl::InternalError("a response that was decided early reads no body");
  }
  void Finish(HttpReply) override {}

 private:
  HttpResponse response_;
};

// The largest body of a request that changes or asks for something small.
inline constexpr Bytes kMaxControlBody = KiB(64);

// The whole body, as text, decides the response.
class TextExchange final : public HttpExchange {
 public:
  using Answer = std::function<void(std::string body, HttpReply reply)>;
  TextExchange(Bytes body_limit, Answer answer) : body_limit_(body_limit), answer_(std::move(answer)) {}
  [[nodiscard]] Bytes body_limit() const override { return body_limit_; }
  absl::StatusOr<std::span<std::byte>> NextSpan(std::uint64_t remaining) override {
    return body_.Next(remaining);
  }
  void Finish(HttpReply reply) override { answer_(body_.Take(), std::move(reply)); }

 private:
  Bytes body_limit_;
  Answer answer_;
  TextBody body_;
};

inline std::shared_ptr<HttpExchange> Ready(HttpResponse response) {
  return std::make_shared<ReadyExchange>(std::move(response));
}
inline void ReplyWith(HttpReply& reply, HttpResponse response) {
  reply([response = std::move(response)]() mutable { return std::move(response); });
}

}  // namespace troupe::gateway
