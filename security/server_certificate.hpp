// SERVER CERTIFICATE: what an HTTPS server shows to its clients: a certificate (with its chain) and its key,
// loaded from PEM files and loaded again when they change. Clients show none. It belongs to no cluster: any
// authority that the clients trust may have signed it.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "security/openssl_pointers.hpp"
#include "security/pem_files.hpp"

namespace troupe::security {

struct ServerCertificateFiles {
  std::string certificate;  // ours, then the intermediate ones if there are any
  std::string key;          // 0600
};

// Thread-safe.
class ServerCertificate {
 public:
  // One good set; immutable. An SSL made of the context holds its own reference to it, so that a connection
  // keeps the certificate with which it began.
  struct Loaded {
    // TLS 1.2 and 1.3 with forward secrecy and authenticated encryption only; ALPN takes http/1.1.
    ContextPtr context;
    absl::Time not_before, not_after;
    std::string description;  // "'api.example' (serial 1f2e...)"
  };

  static absl::StatusOr<std::shared_ptr<ServerCertificate>> Load(ServerCertificateFiles files);

  [[nodiscard]] std::shared_ptr<const Loaded> Current() const;
  // Loads the files again when one of them changed since the last look, or always when `forced` (SIGHUP).
  // True: there is a new set. An error: what is there now is refused, with one line that says why, and the
  // old set stays. A bad set is reported once, and again only after the files have changed again.
  absl::StatusOr<bool> Reload(bool forced = false);

 private:
  struct Stamps {
    FileStamp certificate, key;
    friend bool operator==(const Stamps&, const Stamps&) = default;
  };
  explicit ServerCertificate(ServerCertificateFiles files) : files_(std::move(files)) {}
  [[nodiscard]] Stamps Look() const { return {StampOf(files_.certificate), StampOf(files_.key)}; }

  const ServerCertificateFiles files_;
  mutable std::mutex mutex_;
  Stamps seen_;                            // guarded by mutex_
  std::shared_ptr<const Loaded> current_;  // guarded by mutex_
};

// One line that an operator has to read: the certificate is expired, not yet valid, or ends within two weeks.
// Empty: nothing is to be said.
[[nodiscard]] std::string ValidityWarning(const ServerCertificate::Loaded& loaded, absl::Time now);

}  // namespace troupe::security
