// HTTP STREAM: moves the bytes of one connection, plain or through TLS. Only http_*.cpp see this header.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "gateway/http_pace.hpp"
#include "gateway/tls_session.hpp"

namespace troupe::gateway {

// One thread. Whatever moves is told to the pace, and nothing moves after Close.
//
// Coroutines give bool only, and are awaited in statements of their own: GCC 12 loses its way in frames that
// hold more.
class HttpStream {
 public:
  using Buffers = std::vector<boost::asio::const_buffer>;

  HttpStream(boost::asio::ip::tcp::socket socket, boost::asio::io_context& context, const HttpPace& pace);

  // From now on everything goes through TLS; Handshake comes first.
  void BeginTls(SSL_CTX* context);
  // Null: plain HTTP.
  [[nodiscard]] TlsSession* tls() { return tls_.get(); }
  [[nodiscard]] HttpPace& pace() { return pace_; }
  [[nodiscard]] const HttpPace& pace() const { return pace_; }
  [[nodiscard]] int descriptor() { return socket_.native_handle(); }

  void Enter(HttpState state, std::uint64_t transferred = 0) {
    pace_.Enter(state, transferred, std::chrono::steady_clock::now());
  }
  // False when the handshake failed, or was given up.
  boost::asio::awaitable<bool> Handshake();
  // At least one byte, or false: the end, an error, or the deadline.
  boost::asio::awaitable<bool> Read(std::span<std::byte> into, std::size_t* count);
  // All bytes, or false.
  boost::asio::awaitable<bool> Write(const Buffers* buffers);
  // Reads what the client still sends, up to a limit, after it was told that no more is taken: closing at
  // once would reset the connection and could destroy the response before the client reads it (RFC 9112,
  // 9.6).
  boost::asio::awaitable<bool> Discard();
  // What of `bytes` the socket takes at once, around TLS.
  void WritePlain(std::string_view bytes);
  // What waits for the socket ends with false.
  void Cancel();
  void Close();

 private:
  boost::asio::awaitable<bool> ReadTls(std::span<std::byte> into, std::size_t* count);
  boost::asio::awaitable<bool> WriteTls(const Buffers* buffers);
  boost::asio::awaitable<bool> AwaitTls(TlsSession::Result wanted);
  boost::asio::awaitable<bool> TakeTurn(std::size_t moved);

  boost::asio::ip::tcp::socket socket_;
  boost::asio::io_context& context_;
  HttpPace pace_;
  std::unique_ptr<TlsSession> tls_;
  std::size_t turn_ = 0;  // bytes moved over TLS since other connections had their turn
};

}  // namespace troupe::gateway
