#include "gateway/tls_session.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/check.hpp"
#include "security/openssl_pointers.hpp"

namespace troupe::gateway {

namespace {

// OpenSSL's own socket BIO writes with write(), which raises SIGPIPE when the client has gone.
int Descriptor(BIO* bio) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
}

int SendTo(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const auto sent = ::send(Descriptor(bio), bytes, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int ReceiveFrom(BIO* bio, char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const auto got = ::recv(Descriptor(bio), bytes, static_cast<std::size_t>(size), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long Control(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without SIGPIPE");
    TROUPE_CHECK(made != nullptr, "OpenSSL has no memory for a BIO method");
    BIO_meth_set_write(made, SendTo);
    BIO_meth_set_read(made, ReceiveFrom);
    BIO_meth_set_ctrl(made, Control);
    return made;
  }();
  return method;
}

bool BeganPlain(unsigned long error) {
  const int reason = ERR_GET_REASON(error);
  return ERR_GET_LIB(error) == ERR_LIB_SSL &&
         (reason == SSL_R_HTTP_REQUEST || reason == SSL_R_HTTPS_PROXY_REQUEST ||
          reason == SSL_R_WRONG_VERSION_NUMBER);
}

}  // namespace

TlsSession::TlsSession(SSL_CTX* context, int socket) : ssl_(SSL_new(context)) {
  BIO* bio = BIO_new(SocketMethod());
  TROUPE_CHECK(ssl_ != nullptr && bio != nullptr, "OpenSSL has no memory for a connection");
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_accept_state(ssl_.get());
}

TlsSession::Result TlsSession::Judge(int returned) {
  if (returned > 0) return Result::kDone;
  const int system = errno;
  switch (SSL_get_error(ssl_.get(), returned)) {
    case SSL_ERROR_WANT_READ:
      return Result::kWantRead;
    case SSL_ERROR_WANT_WRITE:
      return Result::kWantWrite;
    case SSL_ERROR_ZERO_RETURN:
      return Result::kEnded;
    default:
      break;
  }
  const auto error = ERR_peek_error();
  is_plain_ = !shaken_ && BeganPlain(error);
  if (error != 0) {
    failure_ = security::TakeOpenSslErrors();
  } else {
    failure_ = returned < 0 && system != 0 ? std::strerror(system) : "the connection was closed";
  }
  return Result::kFailed;
}

TlsSession::Result TlsSession::Handshake() {
  ERR_clear_error();
  errno = 0;
  const Result result = Judge(SSL_do_handshake(ssl_.get()));
  shaken_ = result == Result::kDone;
  return result;
}

TlsSession::Result TlsSession::Read(std::span<std::byte> into, std::size_t& count) {
  ERR_clear_error();
  errno = 0;
  count = 0;
  return Judge(SSL_read_ex(ssl_.get(), into.data(), into.size(), &count));
}

TlsSession::Result TlsSession::Write(std::span<const std::byte> from, std::size_t& count) {
  ERR_clear_error();
  errno = 0;
  count = 0;
  return Judge(SSL_write_ex(ssl_.get(), from.data(), from.size(), &count));
}

void TlsSession::End() {
  if (!shaken_ || !failure_.empty()) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

}  // namespace troupe::gateway
