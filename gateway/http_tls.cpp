// The part of HttpStream that knows TLS.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "gateway/http_stream.hpp"

namespace troupe::gateway {

namespace asio = boost::asio;
using Result = TlsSession::Result;

namespace {
// After so many bytes other connections of the thread have their turn: a client that is faster than the
// cipher would never make this one wait.
constexpr std::size_t kTurn = 256 * 1024;
}  // namespace

void HttpStream::BeginTls(SSL_CTX* context) {
  tls_ = std::make_unique<TlsSession>(context, socket_.native_handle());
}

asio::awaitable<bool> HttpStream::Handshake() {
  Enter(HttpState::kHandshake);
  Result result = tls_->Handshake();
  while (result == Result::kWantRead || result == Result::kWantWrite) {
    const bool ready = co_await AwaitTls(result);
    if (!ready) break;
    result = tls_->Handshake();
  }
  co_return result == Result::kDone;
}

asio::awaitable<bool> HttpStream::AwaitTls(Result wanted) {
  const auto kind =
      wanted == Result::kWantWrite ? asio::socket_base::wait_write : asio::socket_base::wait_read;
  const auto [error] = co_await socket_.async_wait(kind, asio::as_tuple(asio::use_awaitable));
  co_return !error && !pace_.closed();
}

asio::awaitable<bool> HttpStream::TakeTurn(std::size_t moved) {
  turn_ += moved;
  if (turn_ < kTurn) co_return true;
  turn_ = 0;
  co_await asio::post(context_, asio::use_awaitable);
  co_return !pace_.closed();
}

// The sweep of deadlines cancels only what waits, so that a client that always sends is looked at here.
asio::awaitable<bool> HttpStream::ReadTls(std::span<std::byte> into, std::size_t* count) {
  while (true) {
    const Result result = tls_->Read(into, *count);
    if (result == Result::kDone) break;
    if (result != Result::kWantRead && result != Result::kWantWrite) co_return false;
    turn_ = 0;
    const bool ready = co_await AwaitTls(result);
    if (!ready) co_return false;
  }
  const bool alive = co_await TakeTurn(*count);
  co_return alive && !pace_.timed_out();
}

asio::awaitable<bool> HttpStream::WriteTls(const Buffers* buffers) {
  std::uint64_t moved = pace_.transferred();
  for (asio::const_buffer buffer : *buffers) {
    while (buffer.size() > 0) {
      std::size_t count = 0;
      const Result result = tls_->Write({static_cast<const std::byte*>(buffer.data()), buffer.size()}, count);
      bool going = true;
      if (result == Result::kDone) {
        buffer += count;
        moved += count;
        Enter(pace_.state(), moved);
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
