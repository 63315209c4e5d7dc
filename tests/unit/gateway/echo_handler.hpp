// A handler for tests of the server: it sends each request back.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gateway/http_body.hpp"
#include "gateway/http_error.hpp"
#include "gateway/http_exchanges.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

// Answers with method, target and body; on /hold it answers only when it is told to, on /refuse with an error
// at the first byte.
class EchoHandler final : public HttpHandler {
 public:
  class Exchange final : public HttpExchange {
   public:
    Exchange(EchoHandler& handler, const HttpRequestHead& head)
        : handler_(handler), method_(head.method), target_(head.target) {}
    Bytes body_limit() const override { return KiB(256); }
    absl::StatusOr<std::span<std::byte>> NextSpan(std::uint64_t remaining) override {
      if (target_ == "/refuse") return absl::InvalidArgumentError("refused");
      return body_.Next(remaining);
    }
    void Finish(HttpReply reply) override {
      HttpResponse response;
      response.body =
          target_ == "/large" ? std::string(8 << 20, 'L') : Cat(method_, " ", target_, " ", body_.text());
      if (target_ != "/hold") return ReplyWith(reply, std::move(response));
      const std::lock_guard lock(handler_.mutex_);
      handler_.held_.push_back(
          [reply = std::make_shared<HttpReply>(std::move(reply)), body = std::move(response.body)] {
            HttpResponse held;
            held.body = body;
            ReplyWith(*reply, std::move(held));
          });
      handler_.changed_.notify_all();
    }
    void Abandon() override {
      const std::lock_guard lock(handler_.mutex_);
      ++handler_.abandoned_;
      handler_.changed_.notify_all();
    }

   private:
    EchoHandler& handler_;
    std::string method_;
    std::string target_;
    TextBody body_;
  };

  std::shared_ptr<HttpExchange> Begin(const HttpRequestHead& head) override {
    if (head.target == "/early") return Ready(ErrorResponse(404, "early"));
    return std::make_shared<Exchange>(*this, head);
  }
  bool IsProbe(const HttpRequestHead& head) const override { return head.target == "/probe"; }
  void WaitForHeld(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return held_.size() >= count; });
  }
  void WaitForAbandoned(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return abandoned_ >= count; });
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    for (auto& held : held_) held();
    held_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> held_;
  std::size_t abandoned_ = 0;
};

}  // namespace troupe::gateway
