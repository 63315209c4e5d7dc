// CREDENTIALS: what a daemon or a shell shows to its peers and checks theirs against: the certificate
// authority, its own certificate and key, and the list of revoked certificates. Loaded from PEM files and
// loaded again when they change.
//
//   Credentials    owns the files' names and the newest good set. Thread-safe.
//   Snapshot       one good set; immutable. A connection keeps the snapshot with which it began.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "security/certificate.hpp"
#include "security/identity.hpp"
#include "security/openssl_pointers.hpp"
#include "security/pem_files.hpp"

namespace troupe::security {

struct CredentialFiles {
  std::string authority;    // certificate(s) of the certificate authority
  std::string certificate;  // ours, then intermediate ones if there are any
  std::string key;          // 0600
  std::string revocations;  // while there is no such file, no certificate is revoked; empty: never

  // ca.pem, certificate.pem, key.pem and revoked.pem: as `troupe ca issue` writes them.
  [[nodiscard]] static CredentialFiles InFolder(const std::string& folder);
};

class Snapshot {
 public:
  // Reads the files and checks that they fit together and that our own certificate is good now.
  static absl::StatusOr<std::shared_ptr<const Snapshot>> Load(const CredentialFiles& files);

  // TLS 1.3 only; the peer must show a certificate of the authority; no session tickets. The context lives as
  // long as this snapshot, and an SSL made of it holds its own reference.
  [[nodiscard]] SSL_CTX* server_context() const { return server_.get(); }
  [[nodiscard]] SSL_CTX* client_context() const { return client_.get(); }
  [[nodiscard]] const Identity& identity() const { return identity_; }
  [[nodiscard]] absl::Time not_after() const { return not_after_; }
  // Whether a peer's certificate is still trusted: for connections that were made before a reload. `chain`:
  // what it has shown beside it. That it has expired since it was shown ends no connection: its holder has a
  // newer one by then, or cannot connect again.
  [[nodiscard]] absl::Status CheckPeer(X509* certificate, const std::vector<X509Ptr>& chain) const;

 private:
  Snapshot() = default;

  StorePtr store_;
  ContextPtr server_, client_;
  Identity identity_;
  absl::Time not_after_;
};

class Credentials {
 public:
  static absl::StatusOr<std::shared_ptr<Credentials>> Load(CredentialFiles files);

  [[nodiscard]] std::shared_ptr<const Snapshot> Current() const;
  // Loads the files again when one of them changed since the last look, or always when `forced` (SIGHUP).
  // True: there is a new set. An error: what is there now is refused, with one line that says why, and the
  // old set stays. A bad set is reported once, and again only after the files have changed again.
  absl::StatusOr<bool> Reload(bool forced = false);

 private:
  explicit Credentials(CredentialFiles files) : files_(std::move(files)) {}
  [[nodiscard]] std::vector<FileStamp> Stamps() const;

  const CredentialFiles files_;
  mutable std::mutex mutex_;
  std::vector<FileStamp> seen_;              // guarded by mutex_; the list of revoked ones is the last
  bool has_list_ = false;                    // guarded by mutex_; there was such a list
  std::shared_ptr<const Snapshot> current_;  // guarded by mutex_
};

// The certificate that a peer has shown, with the chain to the authority.
struct ShownCertificate {
  X509Ptr certificate;
  std::vector<X509Ptr> chain;
};
[[nodiscard]] ShownCertificate CertificateOf(const SSL* connection);

// Before the handshake of a client: the certificate of the server must name `host` (a DNS name or an IP
// address).
[[nodiscard]] absl::Status ExpectHost(SSL* connection, const std::string& host);
// After the handshake: who the peer is.
[[nodiscard]] absl::StatusOr<Identity> PeerIdentity(const SSL* connection);
// One line on a handshake, or a first read, that failed: which certificate, what is wrong with it, what to
// do. `peer` is the address at the other end. Empties this thread's queue of OpenSSL errors.
[[nodiscard]] absl::Status HandshakeFailure(const SSL* connection, std::string_view peer);

}  // namespace troupe::security
