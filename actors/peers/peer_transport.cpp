#include "actors/peers/peer_transport.hpp"

#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <caf/policy/tcp.hpp>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::actors {

namespace {

using caf::io::network::rw_state;

// The caller that reports the failure names the peer.
constexpr std::string_view kTls = "TLS";
// Of one event: other connections of the thread have their turn, too.
constexpr std::size_t kWrittenAtOnce = 256u << 10;

// What OpenSSL says of a first record that is none.
bool IsNoTls(int reason) {
  return reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST;
}

// OpenSSL's own writes to a socket end a process with SIGPIPE when the other end has gone.
int SendQuietly(BIO* bio, const char* data, int size) {
  int socket = -1;
  BIO_get_fd(bio, &socket);
  const auto sent = static_cast<int>(::send(socket, data, static_cast<std::size_t>(size), MSG_NOSIGNAL));
  BIO_clear_retry_flags(bio);
  if (sent < 0 && BIO_sock_should_retry(sent) == 1) BIO_set_retry_write(bio);
  return sent;
}
// Notes in the BIO whether the socket gave less than was asked for: it is empty then.
int Receive(BIO* bio, char* data, int size) {
  int socket = -1;
  BIO_get_fd(bio, &socket);
  const auto got = static_cast<int>(::recv(socket, data, static_cast<std::size_t>(size), 0));
  BIO_clear_retry_flags(bio);
  BIO_set_data(bio, got < size ? bio : nullptr);
  if (got < 0 && BIO_sock_should_retry(got) == 1) BIO_set_retry_read(bio);
  return got;
}
bool IsEmpty(const SSL* tls) {
  return BIO_get_data(SSL_get_rbio(tls)) != nullptr;
}
const BIO_METHOD* QuietSocket() {
  static BIO_METHOD* const kMethod = [] {
    const BIO_METHOD* socket = BIO_s_socket();
    BIO_METHOD* quiet = BIO_meth_new(BIO_TYPE_SOCKET, "socket without signals");
    BIO_meth_set_read(quiet, Receive);
    BIO_meth_set_write(quiet, SendQuietly);
    BIO_meth_set_ctrl(quiet, BIO_meth_get_ctrl(socket));
    BIO_meth_set_create(quiet, BIO_meth_get_create(socket));
    BIO_meth_set_destroy(quiet, BIO_meth_get_destroy(socket));
    return quiet;
  }();
  return kMethod;
}
// Null when OpenSSL has no memory. The socket is not closed with it.
security::SslPtr NewTls(SSL_CTX* context, int socket) {
  security::SslPtr tls(SSL_new(context));
  BIO* bio = BIO_new(QuietSocket());
  if (tls == nullptr || bio == nullptr) {
    BIO_free(bio);
    return nullptr;
  }
  BIO_set_fd(bio, socket, BIO_NOCLOSE);
  SSL_set_bio(tls.get(), bio, bio);
  return tls;
}

int Bounded(std::size_t size) {
  return static_cast<int>(std::min<std::size_t>(size, 1u << 30));
}

}  // namespace

// A record is read with one system call instead of two, and the buffers stay: a process has few connections, and each
// carries many small messages. This begins after the handshake, because the bytes behind a handshake must stay in the
// socket until CAF waits for the socket.
PeerTransport::PeerTransport(security::SslPtr tls) : tls_(std::move(tls)) {
  if (tls_ == nullptr) return;
  SSL_clear_mode(tls_.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_set_read_ahead(tls_.get(), 1);
}

rw_state PeerTransport::ReadSome(std::size_t& result, int socket, void* to, std::size_t size) {
  if (tls_ == nullptr) return caf::policy::tcp::read_some(result, socket, to, size);
  result = 0;
  // CAF reads until it gets nothing. When a read has emptied the socket, that is known without asking the socket again:
  // epoll tells of what comes later, and of the end of the connection.
  if (std::exchange(drained_, false) && SSL_has_pending(tls_.get()) == 0) return rw_state::success;
  ERR_clear_error();
  const int got = SSL_read(tls_.get(), to, Bounded(size));
  if (got <= 0) return After(got, SSL_ERROR_WANT_READ);
  result = static_cast<std::size_t>(got);
  drained_ = IsEmpty(tls_.get());
  return rw_state::success;
}

rw_state PeerTransport::WriteSome(std::size_t& result, int socket, const void* from, std::size_t size) {
  if (tls_ == nullptr) return caf::policy::tcp::write_some(result, socket, from, size);
  result = 0;
  // One call encrypts and writes one record, of 16 KiB at most.
  while (result < std::min(size, kWrittenAtOnce)) {
    ERR_clear_error();
    const int put = SSL_write(tls_.get(), static_cast<const char*>(from) + result, Bounded(size - result));
    if (put <= 0) return result > 0 ? rw_state::success : After(put, SSL_ERROR_WANT_WRITE);
    result += static_cast<std::size_t>(put);
  }
  return rw_state::success;
}

bool PeerTransport::MustReadMore() const {
  return tls_ != nullptr && SSL_has_pending(tls_.get()) == 1;
}

// After its handshake TLS 1.3 only reads to read, and only writes to write, unless a peer asks for new keys
// and does not read the answer. Troupe never does; waiting for it here would be an endless loop of the
// caller's.
rw_state PeerTransport::After(int result, int harmless) {
  const int error = SSL_get_error(tls_.get(), result);
  if (error == harmless) return rw_state::success;
  // An end without a farewell is not an error: the peer's process has ended.
  if (error == SSL_ERROR_SSL)
    if (auto why = security::HandshakeFailure(tls_.get(), kTls); absl::IsUnauthenticated(why))
      failure_ = std::move(why);
  return rw_state::failure;
}

TlsAcceptance::TlsAcceptance(const security::Snapshot& credentials, int socket)
    : tls_(NewTls(credentials.server_context(), socket)) {
  if (tls_ == nullptr)
    status_ = absl::InternalError(absl::StrCat("cannot begin TLS: ", security::TakeOpenSslErrors()));
}

TlsAcceptance::Next TlsAcceptance::Step() {
  if (!status_.ok()) return Next::kOver;
  ERR_clear_error();
  const int result = SSL_accept(tls_.get());
  if (result == 1) return Next::kOver;
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return Next::kRead;
    case SSL_ERROR_WANT_WRITE:
      return Next::kWrite;
    default:
      speaks_tls_ = !IsNoTls(ERR_GET_REASON(ERR_peek_error()));
      status_ = security::HandshakeFailure(tls_.get(), kTls);
      return Next::kOver;
  }
}

absl::StatusOr<security::SslPtr> TlsConnect(const security::Snapshot& credentials, int socket,
                                            const std::string& host, Duration limit) {
  security::SslPtr tls = NewTls(credentials.client_context(), socket);
  if (tls == nullptr)
    return absl::InternalError(absl::StrCat("cannot begin TLS: ", security::TakeOpenSslErrors()));
  TROUPE_RETURN_IF_ERROR(security::ExpectHost(tls.get(), host));
  const Time end = transport::SteadyNow() + limit;
  for (;;) {
    ERR_clear_error();
    const int result = SSL_connect(tls.get());
    if (result == 1) return tls;
    const int error = SSL_get_error(tls.get(), result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
      return security::HandshakeFailure(tls.get(), kTls);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - transport::SteadyNow());
    pollfd waiting{socket, static_cast<short>(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT), 0};
    if (left.count() <= 0 || poll(&waiting, 1, static_cast<int>(left.count())) == 0)
      return absl::UnavailableError(
          absl::StrCat("TLS: it did not end its TLS handshake within ", FormatDuration(limit)));
  }
}

}  // namespace troupe::actors
