#include "transport/stream_connection.hpp"

#include <openssl/err.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::transport {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kPiece = 1 << 20;

SSL_CTX* Shared(SSL_CTX* context) {
  SSL_CTX_up_ref(context);
  return context;
}

}  // namespace

StreamConnection::Tls::Tls(Socket& socket, SSL_CTX* shared)
    : context(Shared(shared)), stream(socket, context) {}

StreamConnection::StreamConnection(Socket socket, std::string peer)
    : socket_(std::move(socket)), peer_(std::move(peer)), deadline_(socket_.get_executor()) {}

StreamConnection::Task<absl::Status> StreamConnection::Dial(const asio::ip::tcp::endpoint& address) {
  const auto [error] = co_await socket_.async_connect(address, kTuple);
  if (error) co_return Failed(error, "does not answer");
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  co_return absl::OkStatus();
}

StreamConnection::Task<absl::Status> StreamConnection::GreetAsServer(
    std::shared_ptr<const security::Snapshot> credentials) {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  if (credentials == nullptr) co_return absl::OkStatus();
  credentials_ = std::move(credentials);
  tls_.emplace(socket_, credentials_->server_context());
  const absl::Status status = co_await Greet(asio::ssl::stream_base::server);
  co_return status;
}

StreamConnection::Task<absl::Status> StreamConnection::GreetAsClient(
    std::shared_ptr<const security::Snapshot> credentials, const std::string& host) {
  if (credentials == nullptr) co_return absl::OkStatus();
  credentials_ = std::move(credentials);
  tls_.emplace(socket_, credentials_->client_context());
  absl::Status status = security::ExpectHost(tls(), host);
  if (status.ok()) status = co_await Greet(asio::ssl::stream_base::client);
  co_return status;
}

StreamConnection::Task<absl::Status> StreamConnection::Greet(asio::ssl::stream_base::handshake_type side) {
  const auto [error] = co_await tls_->stream.async_handshake(side, kTuple);
  if (error) co_return Failed(error, "did not end its TLS handshake");
  co_return absl::OkStatus();
}

StreamConnection::Task<absl::Status> StreamConnection::Read(std::span<std::byte> bytes) {
  if (closed_) co_return absl::UnavailableError(absl::StrCat(peer_, " is not connected any more"));
  const auto buffer = asio::buffer(bytes.data(), bytes.size());
  error_code error;
  if (tls_) {
    const auto [failed, count] = co_await asio::async_read(tls_->stream, buffer, kTuple);
    error = failed;
  } else {
    const auto [failed, count] = co_await asio::async_read(socket_, buffer, kTuple);
    error = failed;
  }
  if (error) co_return Failed(error, "ended the connection");
  co_return absl::OkStatus();
}

StreamConnection::Task<absl::Status> StreamConnection::Write(std::span<const std::byte> bytes,
                                                             Duration patience) {
  while (!bytes.empty()) {
    if (closed_) co_return absl::UnavailableError(absl::StrCat(peer_, " is not connected any more"));
    const auto piece = bytes.first(std::min(bytes.size(), kPiece));
    const auto buffer = asio::buffer(piece.data(), piece.size());
    CloseAfter(patience);
    error_code error;
    if (tls_) {
      const auto [failed, count] = co_await asio::async_write(tls_->stream, buffer, kTuple);
      error = failed;
    } else {
      const auto [failed, count] = co_await asio::async_write(socket_, buffer, kTuple);
      error = failed;
    }
    if (error) co_return Failed(error, "takes no data");
    bytes = bytes.subspan(piece.size());
  }
  KeepOpen();
  co_return absl::OkStatus();
}

absl::Status StreamConnection::Failed(const error_code& error, const char* doing) {
  Close();
  if (tls_ && error.category() == asio::error::get_ssl_category()) {
    // Boost took the first error out of OpenSSL's queue, where the words for it are found.
    const auto code = static_cast<unsigned long>(error.value());
    ERR_raise(ERR_GET_LIB(code), ERR_GET_REASON(code));
    return security::HandshakeFailure(tls(), peer_);
  }
  return absl::UnavailableError(absl::StrCat(peer_, " ", doing, ": ", error.message()));
}

void StreamConnection::CloseAfter(Duration time) {
  deadline_.expires_after(time);
  deadline_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto self = weak.lock();
    if (error || self == nullptr || self->deadline_.expiry() > std::chrono::steady_clock::now()) return;
    self->timed_out_ = true;
    self->Close();
  });
}

void StreamConnection::KeepOpen() {
  deadline_.expires_at(asio::steady_timer::time_point::max());
}

void StreamConnection::Close() {
  if (std::exchange(closed_, true)) return;
  deadline_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

void StreamConnection::Sleep(std::function<void()> ended) {
  asleep_ = true;
  socket_.async_wait(asio::socket_base::wait_read,
                     [weak = weak_from_this(), ended = std::move(ended)](const error_code& error) {
                       const auto self = weak.lock();
                       if (error || self == nullptr || !self->asleep_) return;
                       self->asleep_ = false;
                       ended();
                     });
}

void StreamConnection::Wake() {
  asleep_ = false;
  error_code ignored;
  socket_.cancel(ignored);
}

}  // namespace troupe::transport
