// PEER TRANSPORT: how the bytes of one connection between processes are read and written: plain, or through
// TLS. And the handshake of TLS at either end, which is over before CAF's broker hears of a connection: the
// broker writes at once, and would be called without end for a socket that can be written and may not be.
#pragma once

#include <caf/io/network/rw_state.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/peers/peer_identities.hpp"
#include "base/units.hpp"
#include "security/credentials.hpp"
#include "security/openssl_pointers.hpp"
#include "transport/memory_file.hpp"

namespace troupe::actors {

// Not blocking; one thread at a time.
class PeerTransport {
 public:
  PeerTransport() = default;  // plain
  explicit PeerTransport(security::SslPtr tls);

  // As the policies of CAF's streams: success with 0 bytes means that there is nothing to do now.
  caf::io::network::rw_state ReadSome(std::size_t& result, int socket, void* to, std::size_t size);
  caf::io::network::rw_state WriteSome(std::size_t& result, int socket, const void* from, std::size_t size);
  // Bytes were read from the socket already, so that the socket will not become readable because of them. They may
  // be a part of a record only: the next ReadSome then finds nothing.
  [[nodiscard]] bool MustReadMore() const;
  // Why reading failed, when the other end said why: it has refused our certificate. Once.
  [[nodiscard]] absl::Status TakeFailure() { return std::exchange(failure_, absl::OkStatus()); }

 private:
  // `harmless`: what may be missing now, SSL_ERROR_WANT_READ or _WRITE.
  caf::io::network::rw_state After(int result, int harmless);

  security::SslPtr tls_;  // null: plain
  bool drained_ = false;  // the last read has emptied the socket
  absl::Status failure_;
};

// A handshake at the accepting end, not blocking: call Step when the socket can be read or written as asked.
class TlsAcceptance {
 public:
  TlsAcceptance(const security::Snapshot& credentials, int socket);

  enum class Next { kRead, kWrite, kOver };
  // kOver: see status().
  Next Step();
  // Unauthenticated with what is wrong with the peer, Unavailable when it hung up.
  [[nodiscard]] const absl::Status& status() const { return status_; }
  // False: what came first was no TLS. OpenSSL answers that with nothing.
  [[nodiscard]] bool speaks_tls() const { return speaks_tls_; }
  // Once it is over, and well.
  [[nodiscard]] security::SslPtr Take() { return std::move(tls_); }

 private:
  security::SslPtr tls_;
  absl::Status status_;
  bool speaks_tls_ = true;
};

// A handshake at the dialling end. Blocks for at most `limit`. `host` is what was dialled: the certificate of
// the other end has to name it. Errors as those of TlsAcceptance.
absl::StatusOr<security::SslPtr> TlsConnect(const security::Snapshot& credentials, int socket,
                                            const std::string& host, Duration limit);

}  // namespace troupe::actors
