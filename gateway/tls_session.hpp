// One TLS session of a server over a connected, non-blocking socket. It never waits: where bytes are missing,
// or the socket takes none, it says for what to wait before the same call is made again.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace troupe::gateway {

// One thread. The socket outlives it, and is closed by its owner.
class TlsSession {
 public:
  enum class Result {
    kDone,
    kWantRead,   // call again when the socket can be read
    kWantWrite,  // call again when the socket can be written
    kEnded,      // the client said that nothing follows
    kFailed,     // see Failure(); nothing more can be done
  };

  TlsSession(SSL_CTX* context, int socket);
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  [[nodiscard]] Result Handshake();
  // `count`: the bytes that were moved, at least one with kDone. `into` and `from` are not empty; after
  // kWantRead or kWantWrite the next call of Write has the same bytes.
  [[nodiscard]] Result Read(std::span<std::byte> into, std::size_t& count);
  [[nodiscard]] Result Write(std::span<const std::byte> from, std::size_t& count);
  // Says that nothing follows, if the socket takes it at once.
  void End();

  // Why the last call failed, for people.
  [[nodiscard]] const std::string& Failure() const { return failure_; }
  // The client began with something that is not TLS, as a plain HTTP request is.
  [[nodiscard]] bool is_plain() const { return is_plain_; }

 private:
  Result Judge(int returned);

  struct Freed {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  std::unique_ptr<SSL, Freed> ssl_;
  bool shaken_ = false;
  bool is_plain_ = false;
  std::string failure_;
};

}  // namespace troupe::gateway
