// The part of HttpConnection that moves bytes over TLS.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "gateway/http_connection.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace asio = boost::asio;
using boost::system::error_code;
using Result = TlsSession::Result;

namespace {
// After so many bytes other connections of the thread have their turn: a client that is faster than the
// cipher would never make this one wait.
constexpr std::size_t kTurn = 256 * 1024;

constexpr std::string_view kSpeaksTls =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 59\r\nConnection: "
    "close\r\n\r\n"
    R"({"error":"this port speaks HTTPS; use https:// in the URL"})";
static_assert(kSpeaksTls.ends_with(R"(URL"})") && kSpeaksTls.size() - kSpeaksTls.find('{') == 59);
}  // namespace

asio::awaitable<bool> HttpConnection::Handshake() {
  HttpShared& shared = loop_.shared();
  const auto now = std::chrono::steady_clock::now();
  if (shared.handshakes.Take(client_, 1, now) != TransferBudget::Verdict::kTaken) {
    shared.refused_tls.Count(TlsRefusal::kTooMany, client_name_, "too many handshakes are under way", now);
    co_return false;
  }
  charged_handshake_ = 1;
  Enter(State::kHandshake);
  Result result = tls_->Handshake();
  while (result == Result::kWantRead || result == Result::kWantWrite) {
    const bool ready = co_await AwaitTls(result);
    if (!ready) break;
    result = tls_->Handshake();
  }
  Forget();
  if (result != Result::kDone) co_return HandshakeFailed();
  shared.handshakes_done.fetch_add(1, std::memory_order_relaxed);
  co_return true;
}

bool HttpConnection::HandshakeFailed() {
  // Its end was counted where it was decided, if it was ours.
  if (state_ == State::kClosed) return false;
  if (tls_->is_plain()) {
    error_code ignored;
    socket_.write_some(asio::buffer(kSpeaksTls.data(), kSpeaksTls.size()), ignored);
    // The request that lies unread would make a reset of the end, and the client would lose the line.
    Enter(State::kLingering);
  }
  loop_.shared().refused_tls.Count(
      tls_->is_plain() ? TlsRefusal::kPlainHttp : TlsRefusal::kFailed, client_name_,
      tls_->is_plain() ? "it did not begin with TLS; this port speaks HTTPS only" : tls_->Failure(),
      std::chrono::steady_clock::now());
  return false;
}

asio::awaitable<bool> HttpConnection::AwaitTls(Result wanted) {
  const auto kind =
      wanted == Result::kWantWrite ? asio::socket_base::wait_write : asio::socket_base::wait_read;
  const auto [error] = co_await socket_.async_wait(kind, asio::as_tuple(asio::use_awaitable));
  co_return !error && state_ != State::kClosed;
}

asio::awaitable<bool> HttpConnection::TakeTurn(std::size_t moved) {
  turn_ += moved;
  if (turn_ < kTurn) co_return true;
  turn_ = 0;
  co_await asio::post(loop_.context(), asio::use_awaitable);
  co_return state_ != State::kClosed;
}

// At least one byte, or false: the end, an error, or the deadline, for which the sweep cancels only what
// waits.
asio::awaitable<bool> HttpConnection::ReadTls(std::span<std::byte> into, std::size_t* count) {
  while (true) {
    const Result result = tls_->Read(into, *count);
    if (result == Result::kDone) break;
    if (result != Result::kWantRead && result != Result::kWantWrite) co_return false;
    turn_ = 0;
    const bool ready = co_await AwaitTls(result);
    if (!ready) co_return false;
  }
  const bool alive = co_await TakeTurn(*count);
  co_return alive && !timed_out_;
}

asio::awaitable<bool> HttpConnection::WriteTls(const std::vector<asio::const_buffer>* buffers) {
  std::uint64_t moved = transferred_;
  for (asio::const_buffer buffer : *buffers) {
    while (buffer.size() > 0) {
      std::size_t count = 0;
      const Result result = tls_->Write({static_cast<const std::byte*>(buffer.data()), buffer.size()}, count);
      bool going = true;
      if (result == Result::kDone) {
        buffer += count;
        moved += count;
        Enter(state_, moved);
        going = co_await TakeTurn(count);
      } else if (result == Result::kWantRead || result == Result::kWantWrite) {
        turn_ = 0;
        going = co_await AwaitTls(result);
      } else {
        going = false;
      }
      if (!going) co_return false;
    }
  }
  co_return true;
}

}  // namespace troupe::gateway
